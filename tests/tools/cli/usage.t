# Commands, help, and what is said of a wrong command line.
$ kiln
usage: kiln COMMAND [options]
...
kiln: no command given
[2]
$ kiln help
usage: kiln COMMAND [options]

  ops *
  run *
  plan *
...
Exit codes: 0 good, 1 a check failed, 2 usage, 3 environment.
$ kiln help run
usage: kiln run [options] FILE.safetensors
Run the operation of a file*
  --device DEVICE *
...
$ kiln run --help | head -1
usage: kiln run [options] FILE.safetensors
# Every command's help, as text and in the man page, which troff takes without a word.
$ kiln help --man > man; for c in $(kiln help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do kiln help $c > text || echo "$c: no help"; grep -q "^usage: kiln $c" text || echo "$c: no usage"; grep -q "^.SS kiln $c " man || echo "$c: not in the man page"; done
$ kiln help --man | sed -n 1,3p
.TH KILN 1 "" "kiln *" "User Commands"
.SH NAME
kiln *
$ kiln help cache | tail -1
  merge *
$ if command -v groff > /dev/null; then kiln help --man | groff -man -Tutf8 -ww -z; fi
# The machines that help names are those that the library knows.
$ kiln plan gemm M=1 N=1 K=1 --device offline:none 2>&1 | sed 's/.*known are //; s/ (KILN_E.*//; s/ ([a-z0-9_]*)//g; s/, /,/g' > known; grep -c h200 known; for c in plan warm; do kiln help $c | grep -F -c "MACHINE: $(cat known)" || kiln help $c | grep -F -c "machines: $(cat known)"; done
1
1
0
1
$ kiln plan gemm M=1 N=1 K=1 --device offline:none 2>&1 | grep -o 'sm_[0-9a]*' | awk '!seen[$0]++' | paste -sd, > known; for c in plan warm; do kiln help $c | grep -F -c "reference device: $(cat known)" || kiln help $c | grep -F -c "reference devices: $(cat known)"; done
1
0
1
$ kiln --version
kiln 0.1.0
$ kiln fire
kiln: "fire" is not a command; "kiln help" lists them
[2]
$ kiln ops --jsn
kiln: --jsn is not an option of kiln ops; "kiln help ops" lists them
[2]
$ kiln run
kiln: kiln run takes one file; it got 0
[2]
$ kiln run a b
kiln: kiln run takes one file; it got 2
[2]
$ kiln run --repeat 0 a
kiln: --repeat must be at least 1
[2]
$ kiln run --repeat many a
kiln: --repeat is "many"; wanted a whole number from 0 to 9223372036854775807
[2]
$ kiln env now
kiln: kiln env takes no operands
[2]
$ kiln cache
kiln: kiln cache needs one of stat, ls, show, verify, trim, pack, merge
[2]
$ kiln cache burn
kiln: kiln cache has no "burn"; it has stat, ls, show, verify, trim, pack, merge
[2]
$ kiln ops > /dev/full
kiln: cannot write to the standard output
[3]
# A library that is not there, and one that is not libkiln.
$ kiln ops --library /nowhere/libkiln.so
kiln: cannot open the library: /nowhere/libkiln.so: *; name it with --library or KILN_LIBRARY
[3]
$ KILN_LIBRARY=libm.so.6 kiln ops
kiln: libm.so.6 is not libkiln: it has no kiln_abi_version
[3]
