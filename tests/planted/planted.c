/* The 24 planted faults: each as small as a slip of the pen, each of a kind that has been shipped by somebody. */
#include "planted.h"

#include <math.h>
#include <string.h>

/* ---- tensors -------------------------------------------------------------------------------------------------------
 * Rows: all axes but the last one. Numbers are changed in f32 tensors alone: an extent says how wide its elements are,
 * not what they are. */

static int64_t width_of(const kn_extent *x) {
    return x->ndim ? x->shape[x->ndim - 1] : 1;
}

static int64_t rows_of(const kn_extent *x) {
    int64_t width = width_of(x);
    return width ? kn_planted_elements(x) / width : 0;
}

static float get(const kn_extent *x, int64_t i) {
    float v;
    memcpy(&v, kn_planted_at(x, i), sizeof v);
    return v;
}

static void put(const kn_extent *x, int64_t i, float v) {
    memcpy(kn_planted_at(x, i), &v, sizeof v);
}

static void zero(const kn_extent *x, int64_t i) {
    memset(kn_planted_at(x, i), 0, x->item);
}

static void exchange(const kn_extent *x, int64_t i, int64_t j) {
    unsigned char kept[8];
    memcpy(kept, kn_planted_at(x, i), x->item);
    memcpy(kn_planted_at(x, i), kn_planted_at(x, j), x->item);
    memcpy(kn_planted_at(x, j), kept, x->item);
}

static bool is_zero(const kn_extent *x, int64_t i) {
    static const unsigned char none[8] = {0};
    return memcmp(kn_planted_at(x, i), none, x->item) == 0;
}

/* The first row from the middle on that is not all zeros; -1 if there is none. */
static int64_t full_row(const kn_extent *x) {
    int64_t rows = rows_of(x), width = width_of(x);
    for (int64_t k = 0; k < rows; k++) {
        int64_t r = (rows / 2 + k) % rows;
        for (int64_t i = 0; i < width; i++)
            if (!is_zero(x, r * width + i)) return r;
    }
    return -1;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static void all_zeros(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    for (int64_t i = 0, n = kn_planted_elements(&t->x); t->x.writable && i < n; i++) zero(&t->x, i);
}

static void zeroed_row(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    int64_t r = t->x.writable ? full_row(&t->x) : -1, width = width_of(&t->x);
    for (int64_t i = 0; r >= 0 && i < width; i++) zero(&t->x, r * width + i);
}

static void swapped_rows(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    int64_t r = t->x.writable ? full_row(&t->x) : -1, rows = rows_of(&t->x), width = width_of(&t->x);
    for (int64_t i = 0; r >= 0 && rows > 1 && i < width; i++)
        exchange(&t->x, r * width + i, (r + 1) % rows * width + i);
}

static void scaled_expert(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    if (!t->x.writable || t->x.item != 4 || t->x.ndim < 2) return;
    int64_t slices = t->x.shape[0], part = kn_planted_elements(&t->x) / slices, best = 0;
    double most = -1;
    for (int64_t s = 0; s < slices; s++) {
        double sum = 0;
        for (int64_t i = 0; i < part; i++) sum += fabs((double)get(&t->x, s * part + i));
        if (sum > most) best = s;
        if (sum > most) most = sum;
    }
    for (int64_t i = 0; i < part; i++) put(&t->x, best * part + i, 1.02f * get(&t->x, best * part + i));
}

static void shifted_columns(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    int64_t width = width_of(&t->x), rows = rows_of(&t->x), by = width > 16 ? 16 : 1;
    for (int64_t r = 0; t->x.writable && r < rows; r++)
        for (int64_t i = 0; i + by < width; i++) exchange(&t->x, r * width + i, r * width + i + by);
}

static void truncated_tail(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    int64_t width = width_of(&t->x), tail = width % 8 ? width % 8 : 1;
    for (int64_t r = 0; t->x.writable && r < rows_of(&t->x); r++)
        for (int64_t i = width - tail; i < width; i++) zero(&t->x, r * width + i);
}

static void transposed_tile(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    int64_t width = width_of(&t->x), rows = t->x.ndim > 1 ? t->x.shape[t->x.ndim - 2] : 1;
    int64_t side = width < rows ? width : rows;
    for (int64_t i = 0; t->x.writable && i < side && i < 8; i++)
        for (int64_t j = 0; j < i; j++) exchange(&t->x, i * width + j, j * width + i);
}

/* As if beta were 0. */
static void wrong_beta(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    if (!t->x.writable || t->x.poison || t->x.item != 4) return;
    for (int64_t i = 0, n = kn_planted_elements(&t->x); i < n; i++) {
        float old;
        memcpy(&old, t->before + i * 4, sizeof old);
        put(&t->x, i, get(&t->x, i) - old);
    }
}

/* An fp32 result that went through bf16. */
static void wrong_rounding(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    for (int64_t i = 0, n = kn_planted_elements(&t->x); t->x.writable && t->x.item == 4 && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, kn_planted_at(&t->x, i), sizeof bits);
        bits = (bits + 0x8000) & 0xFFFF0000;
        memcpy(kn_planted_at(&t->x, i), &bits, sizeof bits);
    }
}

static void nan_leak(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    int64_t width = width_of(&t->x), rows = rows_of(&t->x);
    for (int64_t r = 0; t->x.writable && t->x.item == 4 && r + 1 < rows; r++) {
        bool bad = false;
        for (int64_t i = 0; i < width; i++) bad = bad || !isfinite(get(&t->x, r * width + i));
        for (int64_t i = 0; bad && i < width; i++) put(&t->x, (r + 1) * width + i, NAN);
        if (bad) return;
    }
}

/* The element behind the last one. */
static void past_the_end(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)p;
    if (!t->x.writable) return;
    unsigned char *behind = kn_planted_at(&t->x, kn_planted_elements(&t->x) - 1) + t->x.item;
    memset(behind, 0x3C, t->x.item);
}

static void modified_input(const kn_planted_program *p, kn_planted_tensor *t) {
    if (!t->x.writable && t == p->tensor) *kn_planted_at(&t->x, 0) ^= 1;
}

/* Two orders of one sum: now and then they differ in the last bit. */
static void unordered_sum(const kn_planted_program *p, kn_planted_tensor *t) {
    static unsigned calls;
    (void)p;
    int64_t r = t->x.writable && t->x.item == 4 ? full_row(&t->x) : -1;
    if (r >= 0 && ++calls % 2) *kn_planted_at(&t->x, r * width_of(&t->x)) ^= 1;
}

static void uncounted_ids(const kn_planted_program *p, kn_planted_tensor *t) {
    (void)t;
    if (p->counter) *p->counter = p->counter_before;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

static bool holds_ids(const kn_extent *x) {
    return strcmp(x->name, "selected_experts") == 0 || strcmp(x->name, "topk_indices") == 0 ||
           strcmp(x->name, "token_indices") == 0;
}

static int64_t id_at(const kn_extent *x, int64_t i) {
    int32_t narrow;
    int64_t wide;
    memcpy(&narrow, kn_planted_at(x, i), sizeof narrow);
    if (x->item == 4) return narrow;
    memcpy(&wide, kn_planted_at(x, i), sizeof wide);
    return wide;
}

static void set_id(const kn_extent *x, int64_t i, int64_t id) {
    if (x->item == 4)
        memcpy(kn_planted_at(x, i), &(int32_t){(int32_t)id}, 4);
    else
        memcpy(kn_planted_at(x, i), &id, 8);
}

static int64_t ids_in(const kn_extent *x) {
    return holds_ids(x) ? kn_planted_elements(x) : 0;
}

/* The last slot of every token. */
static void dropped_slot(kn_planted_tensor *t) {
    int64_t k = t->x.ndim > 1 ? t->x.shape[1] : 1;
    for (int64_t i = k - 1; i < ids_in(&t->x); i += k) set_id(&t->x, i, -1);
}

static void dropped_last_token(kn_planted_tensor *t) {
    int64_t k = t->x.ndim > 1 ? t->x.shape[1] : 1, n = ids_in(&t->x);
    for (int64_t i = n > k ? n - k : 0; i < n; i++) set_id(&t->x, i, -1);
}

static void taken_for_zero(kn_planted_tensor *t) {
    for (int64_t i = 0, n = ids_in(&t->x); i < n; i++)
        if (id_at(&t->x, i) == -1) set_id(&t->x, i, 0);
}

/* Of two equal ids of a token the second is lost. */
static void lost_tie(kn_planted_tensor *t) {
    int64_t k = t->x.ndim > 1 ? t->x.shape[1] : 1;
    for (int64_t i = 0, n = ids_in(&t->x); i < n; i++)
        for (int64_t j = i / k * k; j < i; j++)
            if (id_at(&t->x, i) == id_at(&t->x, j)) set_id(&t->x, i, -1);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* The grid ends one tile early. */
static bool lost_tile(kn_planted_program *p, kn_launch_args *args) {
    (void)p;
    int longest = 0;
    for (int d = 1; d < 3; d++)
        if (args->grid[d] > args->grid[longest]) longest = d;
    if (args->grid[longest] == 1) return false;
    args->grid[longest]--;
    return true;
}

/* The first of several kernels does not run; the others read what the workspace held. */
static bool stale_workspace(kn_planted_program *p, kn_launch_args *args) {
    kn_extent *extents = (kn_extent *)(uintptr_t)args->extents;
    for (uint32_t i = 0; i < args->n_extents; i++) extents[i].poison = false; /* or the simulator would say so */
    return p->launches > 0;
}

/* Rows are taken to lie side by side: 64-bit parameters that hold an input's row stride become the row's length. */
static bool ignored_stride(kn_planted_program *p, kn_launch_args *args) {
    (void)p;
    for (uint32_t i = 0; i < args->n_extents; i++) {
        const kn_extent *x = &args->extents[i];
        int64_t width = width_of(x), stride = x->ndim > 1 ? x->stride[x->ndim - 2] : width;
        for (size_t at = 0; stride > width && at + 8 <= args->params_len; at += 8) {
            unsigned char *param = (unsigned char *)(uintptr_t)args->params + at;
            if (memcmp(param, &stride, 8) == 0) memcpy(param, &width, 8);
        }
    }
    return true;
}

static void ignored_map_stride(kn_tensor_map *map) {
    uint64_t item = map->dim[0] && map->stride[0] / map->dim[0] >= 4 ? 4 : 2, row = map->dim[0] * item;
    if (map->rank > 1 && row % 16 == 0 && map->stride[0] > row) map->stride[0] = row;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Every statement that holds `word` becomes blank; line numbers stay. */
static void blank(char *ptx, const char *word) {
    for (char *at = strstr(ptx, word); at; at = strstr(at, word)) {
        char *from = at;
        while (from > ptx && from[-1] != '\n' && from[-1] != ';' && from[-1] != '{') from--;
        for (; *from && *from != ';'; from++) *from = ' ';
        if (*from) *from = ' ';
        at = from;
    }
}

static void missing_fence(char *ptx) {
    blank(ptx, "fence.proxy.async");
    blank(ptx, "wgmma.fence");
    blank(ptx, "cp.async.wait");
}

static void missing_barrier(char *ptx) {
    blank(ptx, "bar.sync");
}

/* Bound checks let one more through. */
static void off_by_one(char *ptx) {
    static const char *const from[] = {"setp.ge.u64", "setp.ge.s64", "setp.ge.u32", "setp.ge.s32"};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        for (char *at = strstr(ptx, from[i]); at; at = strstr(at + 1, from[i])) at[6] = 't', at[5] = 'g';
}

const kn_planted_fault kn_planted_faults[] = {
    {.name = "zeroed_row", .what = "one row of each output is zero", .output = zeroed_row},
    {.name = "swapped_rows", .what = "two rows of each output are exchanged", .output = swapped_rows},
    {.name = "dropped_slot", .what = "a token's last expert gets nothing", .input = dropped_slot},
    {.name = "scaled_expert", .what = "one slice is 2 % too large", .output = scaled_expert},
    {.name = "shifted_columns", .what = "columns stand 16 places off", .output = shifted_columns},
    {.name = "missing_fence", .what = "kernels lack their proxy fences and waits for copies", .text = missing_fence},
    {.name = "missing_barrier", .what = "kernels lack their block barriers", .text = missing_barrier},
    {.name = "stale_workspace", .what = "the first kernel does not run", .launch = stale_workspace},
    {.name = "all_zeros", .what = "outputs are zeros", .output = all_zeros},
    {.name = "wrong_beta", .what = "outputs that are added to are overwritten", .output = wrong_beta},
    {.name = "truncated_tail", .what = "the columns behind the last full vector are zero", .output = truncated_tail},
    {.name = "wrong_rounding", .what = "fp32 results pass through bf16", .output = wrong_rounding},
    {.name = "off_by_one", .what = "bound checks let one more through", .text = off_by_one},
    {.name = "lost_tile", .what = "the grid ends one tile early", .launch = lost_tile},
    {.name = "ignored_stride",
     .what = "rows are taken to lie side by side",
     .launch = ignored_stride,
     .map = ignored_map_stride},
    {.name = "nan_leak", .what = "a row that is not finite spoils the next one", .output = nan_leak},
    {.name = "past_the_end", .what = "the element behind the last one is written", .output = past_the_end},
    {.name = "modified_input", .what = "a bit of the first input changes", .output = modified_input},
    {.name = "unordered_sum", .what = "every second call differs in one last bit", .output = unordered_sum},
    {.name = "taken_for_zero", .what = "an id of -1 is taken for expert 0", .input = taken_for_zero},
    {.name = "lost_tie", .what = "of two equal ids of a token one is lost", .input = lost_tie},
    {.name = "dropped_last_token", .what = "the last token gets nothing", .input = dropped_last_token},
    {.name = "transposed_tile", .what = "a tile of 8 by 8 is transposed", .output = transposed_tile},
    {.name = "uncounted_ids", .what = "ids out of range are not counted", .output = uncounted_ids},
    {0},
};
