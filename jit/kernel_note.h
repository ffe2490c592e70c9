/* jit/kernel_note: which assembler a cache directory's entries come from, without loading it.
 *
 * Entries in the directory are named by key and assembler, and loading nvJitLink only to ask for its version takes
 * longer than everything else about a hit. So the directory holds a note, <dir>/assembler: the library that was loaded
 * last, its file's stamp, and what it called itself. While the same search would start from the same variables and the
 * file is unchanged, its word is taken. The note decides nothing but which names are looked for: entries are checked
 * as ever, and what is built is named by the assembler that built it. */
#ifndef KN_JIT_KERNEL_NOTE_H
#define KN_JIT_KERNEL_NOTE_H

#include <stdbool.h>
#include <stddef.h>

/** What the note of directory `dir` says, if it still holds. */
bool kn_kernel_note_read(const char *dir, char *text, size_t cap);
/** Note that the library at `path` calls itself `text`. A failure is no error. */
void kn_kernel_note_write(const char *dir, const char *path, const char *text);

#endif
