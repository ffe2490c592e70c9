// CGO_CFLAGS="-I$PWD/include" CGO_LDFLAGS="-L$PWD/build/release -lkiln -Wl,-rpath,$PWD/build/release" go run examples/go/first.go
//
// The smallest whole program: one backward pass on C memory, on the simulator. Kiln's error sentence belongs to the calling
// thread, so the goroutine stays on one.
package main

/*
#include <kiln/kiln.h>
#include <stdlib.h>

// One call with everything in C memory: Go pointers may not be stored in C structs.
static int run(kiln_context *ctx, float *tokens, float *mask, float *loss, unsigned char *training, float *out,
               int64_t b, int64_t e, int32_t k) {
    int64_t e1[] = {e}, be[] = {b, e}, one[] = {1};
    DLDevice cpu = {1, 0};
    DLDataType f32 = {2, 32, 1}, boolean = {6, 8, 1};
    DLTensor gt = {tokens, cpu, 1, f32, e1}, gm = {mask, cpu, 2, f32, be}, gl = {loss, cpu, 1, f32, one};
    DLTensor tr = {training, cpu, 1, boolean, one}, go = {out, cpu, 2, f32, be};
    kiln_load_balance_backward_options o = {.common.struct_size = sizeof o, .top_k = k};
    return kiln_load_balance_backward(ctx, &gt, &gm, &gl, 0, 0, 0, &tr, &go, &o, 0);
}
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

func check(status C.int) {
	if status != 0 {
		fmt.Fprintln(os.Stderr, C.GoString(C.kiln_error_message()))
		os.Exit(1)
	}
}

func floats(n int) []float32 {
	return unsafe.Slice((*float32)(C.calloc(C.size_t(n), 4)), n)
}

func main() {
	runtime.LockOSThread()
	const B, E, K = 4, 8, 2
	tokens, mask, loss, out := floats(E), floats(B*E), floats(1), floats(B*E)
	training := (*C.uchar)(C.calloc(1, 1))
	*training, loss[0] = 1, 2
	for i := range mask {
		mask[i] = float32(i) / 4
		tokens[i%E] = float32(i % E)
	}
	device := C.CString("sim")
	var ctx *C.kiln_context
	check(C.int(C.kiln_context_create(device, nil, &ctx)))
	p := func(s []float32) *C.float { return (*C.float)(unsafe.Pointer(&s[0])) }
	check(C.run(ctx, p(tokens), p(mask), p(loss), training, p(out), B, E, K))
	check(C.int(C.kiln_context_destroy(ctx)))
	for i := range out {
		if d := out[i] - (mask[i] + tokens[i%E] + loss[0]/(B*K)); d > 1e-5 || d < -1e-5 {
			fmt.Fprintln(os.Stderr, "wrong at", i)
			os.Exit(1)
		}
	}
	fmt.Printf("kiln %s gave the right [%d, %d]\n", C.GoString(C.kiln_version()), B, E)
}
