# kiln env: the variables with their meaning; what is set shows.
$ KILN_LOG=0 kiln env
kiln 0.1.0, */libkiln.so.0

devices
...
  sim     *, sm_90a, * multiprocessors, * shared memory a block, * L2
...
libraries
...
variables
  variable  *
...
  KILN_LOG  * 0 * failures and warnings*
...
  KILN_LIBRARY * the libkiln that the tool opens
# What Kiln does not know is not followed: a misspelt variable is pointed at.
$ KILN_CACH_DIR=/tmp KILN_SIM=x kiln env | tail -2 | sort
  KILN_CACH_DIR is set, and is no variable of Kiln
  KILN_SIM is set, and is no variable of Kiln
$ KILN_CACH_DIR=/tmp kiln env --json | grep -A2 '"unknown"'
  "unknown": [
    "KILN_CACH_DIR"
  ]*
$ kiln env | grep -c 'no variable of Kiln'
0
[1]
$ kiln env --json | grep -c '"meaning"'
*
