/* sim/isa: the table isa.def, and the match of a mnemonic against its patterns. */
#ifndef KN_SIM_ISA_H
#define KN_SIM_ISA_H

#include "sim/machine.h"

/** Find the row that `text` ("ld.global.v4.b32") fits and fill types, spaces, modifiers, shape, vec, flags, exec and
 * row of `out`. KN_E_SIM naming the form when there is none. `text` is kept by pointer. */
kn_status kn_isa_decode(const char *text, kn_insn *out);

/** The rows, for listings and for tests. */
uint32_t kn_isa_count(void);
const kn_isa_row *kn_isa_at(uint32_t index);
/** Alternatives "a|b|c" that a set name (RND, INT) of a pattern stands for; NULL if it is no set. */
const char *kn_isa_set(const char *name, size_t len);

kn_token kn_token_find(const char *text, size_t len);
kn_type kn_type_find(const char *text, size_t len);
const char *kn_type_text(kn_type type);
bool kn_space_find(const char *text, size_t len, kn_space *out);

#endif
