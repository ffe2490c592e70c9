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
$ kiln env --json | grep -c '"meaning"'
*
