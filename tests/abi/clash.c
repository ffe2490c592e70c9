/* A library with the names that C programs like to use: see test_copies.c. Whoever calls one of them is counted. */
int clash_calls(void);
void error(void);
int hash_update(void);
void *arena_alloc(void);
int kn_fail(void);
void *kn_malloc(void);

static int calls;

int clash_calls(void) {
    return calls;
}

void error(void) {
    calls++;
}

int hash_update(void) {
    return ++calls;
}

void *arena_alloc(void) {
    calls++;
    return 0;
}

int kn_fail(void) {
    return ++calls;
}

void *kn_malloc(void) {
    calls++;
    return 0;
}
