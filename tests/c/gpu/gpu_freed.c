/* Device memory that the program frees too early, with FASTPATH_CHECK: at a call, while a request is active, and before a
 * persistent request starts again. Each is an error of the call that finds it. One rank.
 *
 * test: only=build link=-ldl */
#include "../check.h"
#include "gpu.h"

enum { BYTES = 5000, TAG = 3 };

static char *make(void)
{
    return device_memory(BYTES, FAKE_DEVICE, 0, 1);
}

static void drop(char *memory)
{
    SAME(cuMemFree_v2((CUdeviceptr)memory), CUDA_SUCCESS);
}

static void expect_freed(int code, const char *memory, int line)
{
    char text[MPI_MAX_ERROR_STRING], address[32];
    int length;
    snprintf(address, sizeof address, "%p", (void *)memory);
    MPI_Error_string(code, text, &length);
    if (class_of(code) != MPI_ERR_BUFFER || !strstr(text, "freed") || !strstr(text, "CUDA device 0") || !strstr(text, address))
        fail(line, "the error is: %s", text);
}

int main(int argc, char **argv)
{
    static char host[BYTES], in[BYTES];
    MPI_Request request, sent;
    MPI_Comm comm = MPI_COMM_SELF;
    load_driver(0);
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);

    /* At a call. The library has seen the memory before. */
    char *memory = make();
    OK(MPI_Sendrecv(memory, BYTES, MPI_CHAR, 0, TAG, in, BYTES, MPI_CHAR, 0, TAG, comm, MPI_STATUS_IGNORE));
    drop(memory);
    expect_freed(MPI_Send(memory + 8, 8, MPI_CHAR, 0, TAG, comm), memory + 8, __LINE__);
    expect_freed(MPI_Bcast(memory, BYTES, MPI_CHAR, 0, comm), memory, __LINE__);

    /* While a receive is active. With `again`, another allocation has the address, and must stay as it is. */
    for (int again = 0; again < 2; again++) {
        memory = make();
        OK(MPI_Irecv(memory, BYTES, MPI_CHAR, 0, TAG, comm, &request));
        drop(memory);
        char *other = again ? make() : NULL;
        OK(MPI_Isend(host, BYTES, MPI_CHAR, 0, TAG, comm, &sent));
        OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
        expect_freed(MPI_Wait(&request, MPI_STATUS_IGNORE), memory, __LINE__);
        if (again) {
            CHECK(other == memory);
            SAME(at(other)[0], 1);
            drop(other);
        }
    }

    /* Before a persistent request starts again. */
    memory = make();
    OK(MPI_Send_init(memory, BYTES, MPI_CHAR, 0, TAG, comm, &request));
    OK(MPI_Irecv(in, BYTES, MPI_CHAR, 0, TAG, comm, &sent));
    OK(MPI_Start(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    drop(memory);
    expect_freed(MPI_Start(&request), memory, __LINE__);
    OK(MPI_Request_free(&request));

    memory = make();
    OK(MPI_Allreduce_init(MPI_IN_PLACE, memory, BYTES, MPI_CHAR, MPI_MAX, comm, MPI_INFO_NULL, &request));
    OK(MPI_Start(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    drop(memory);
    expect_freed(MPI_Start(&request), memory, __LINE__);
    OK(MPI_Request_free(&request));

    /* Memory that lives is served. */
    memory = make();
    OK(MPI_Sendrecv(memory, BYTES, MPI_CHAR, 0, TAG, in, BYTES, MPI_CHAR, 0, TAG, comm, MPI_STATUS_IGNORE));
    SAME(in[BYTES - 1], 1);
    drop(memory);
    MPI_Finalize();
    return failures > 0;
}
