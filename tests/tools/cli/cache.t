# kiln cache: what two runs leave behind, looked at, verified, packed, merged, trimmed.
$ kiln run $GOLDEN/load_balance_backward/b5_e60_k4_t0.safetensors --no-assembler > /dev/null
$ kiln run $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors --no-assembler > /dev/null
$ kiln cache stat
*/cache: 2 entries, * (* unpacked), 0 damaged
$ kiln cache stat --json | grep -E '"(entries|damaged)"'
  "entries": 2,
  "damaged": 0,
$ kiln cache ls
entry * bytes  last used  assembler  kernel
* kiln_load_balance_b*
* kiln_load_balance_b*
$ kiln cache show $(kiln cache ls | awk 'NR == 2 { print $1 }')
*
  * bytes, made by *
  key
...
  metadata
...
$ kiln cache show nothing
kiln: 0 entries of */cache have names that start with "nothing"; wanted one
[2]
$ kiln cache show
kiln: kiln cache show needs the start of an entry's name
[2]
$ kiln cache verify
2 entries expanded again and compared, 0 bad
$ kiln cache pack -o first.pack
first.pack: 2 entries
$ kiln cache pack
kiln: kiln cache pack needs -o PACK
[2]
$ kiln cache merge first.pack $KILN_CACHE_DIR -o both.pack
both.pack: 2 entries
$ kiln cache merge -o x
kiln: kiln cache merge needs directories or packs to merge
[2]
$ kiln cache stat both.pack
both.pack: 2 entries, *
# A run takes its kernel from a pack and leaves the directory alone.
$ KILN_CACHE_RO=$PWD/both.pack KILN_CACHE_DIR=$PWD/other kiln run $GOLDEN/load_balance_backward/b1_e1_k1_t1.safetensors --no-assembler | grep cache:
cache: 0 built, 0 from memory, 1 from packs, 0 from disk*
# The same as JSON, and how long ago an entry was used.
$ kiln cache verify --json
{
  "checked": 2,
  "bad": 0,
  "report": ""
}
$ kiln cache show $(kiln cache ls | awk 'NR == 2 { print $1 }') --json | grep -E '^  "(name|key|meta|assembler)"'
  "name": "*
  "assembler": "ptx",
  "key": {
  "meta": {
$ i=0; for f in $(find $KILN_CACHE_DIR -type f); do i=$((i + 1)); touch -d "-$((i * i * 25)) hours" $f; done; kiln cache ls | awk 'NR > 1 { print $3, $4 }' | sort
25 h
4 days
$ touch -d "-30 minutes" $(find $KILN_CACHE_DIR -type f | head -1); kiln cache ls | grep -c '30 min'
1
$ kiln cache ls first.pack both.pack
kiln: kiln cache ls takes one path; it got 2
[2]
# A damaged entry is seen, and a run builds anew.
$ for f in $(find $KILN_CACHE_DIR -type f | head -1); do printf 'X' | dd of=$f bs=1 seek=$(($(stat -c %s $f) - 3)) conv=notrunc status=none; done
$ kiln cache stat
*/cache: 2 entries, * 1 damaged
$ kiln cache verify
*
2 entries expanded again and compared, 1 bad
kiln: 1 cache entries are bad
[1]
$ kiln cache trim
kiln: kiln cache trim needs --max BYTES
[2]
$ kiln cache trim --max 0 --json | grep -E '"removed"'
  "removed": *
$ kiln cache stat
*/cache: 0 entries, 0 B (0 B unpacked), 0 damaged
$ kiln cache stat missing
kiln: *missing*
[3]
# A file that is no pack.
$ echo "no pack" > text; for verb in stat ls verify; do kiln cache $verb text; echo $?; done
kiln: text: the file ends * (KILN_E_FORMAT)
2
kiln: text: *
2
kiln: text: *
2
$ kiln cache merge text -o merged.pack
kiln: text: * (KILN_E_FORMAT)
[2]
# Only a directory is trimmed, and only one that is there.
$ kiln cache trim missing --max 0
kiln: missing: No such file or directory (KILN_E_IO)
[3]
$ kiln cache trim both.pack --max 0
kiln: the cache cannot be trimmed: */both.pack is not *directory* (KILN_E_UNAVAILABLE)
[3]
$ KILN_CACHE_DIR=off kiln cache trim --max 0
kiln: there is no cache directory: switched off (KILN_E_UNAVAILABLE)
[3]
$ KILN_CACHE_DIR=$PWD/never kiln cache trim --max 0
0 entries removed, 0 B
