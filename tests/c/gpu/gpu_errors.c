/* Device memory that cannot be used: the call returns an error that names address, memory and cause. Host memory works.
 *
 * usage: gpu_errors BYTES served|TEXT     served: the message arrives; TEXT: part of the expected error
 *        gpu_errors BYTES TEXT LIBRARY    memory without access rights, with this library in place of the driver
 *
 * test: only=build link=-ldl */
#include "../check.h"
#include "gpu.h"
#include <sys/mman.h>

static int bytes;

static int exchange(char *out, char *in)
{
    return MPI_Sendrecv(out, bytes, MPI_CHAR, 0, 1, in, bytes, MPI_CHAR, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    bytes = atoi(argv[1]);
    char text[MPI_MAX_ERROR_STRING], address[32], *memory, *host[2] = {calloc(bytes, 1), calloc(bytes, 1)};
    int length, code;
    if (argc > 3) {
        if (!dlopen(argv[3], RTLD_NOW))
            return 2;
        memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    } else {
        load_driver(1);
        memory = device_memory(bytes, FAKE_DEVICE, 1, 5);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    snprintf(address, sizeof address, "%p", (void *)memory);
    code = exchange(memory, host[0]);
    if (!strcmp(argv[2], "served")) {
        SAME(code, MPI_SUCCESS);
        SAME(host[0][bytes - 1], 5);
    } else {
        SAME(class_of(code), MPI_ERR_BUFFER);
        MPI_Error_string(code, text, &length);
        if (!strstr(text, argv[2]) || !strstr(text, address))
            fail(__LINE__, "the error is: %s", text);
    }
    host[0][0] = 7;
    OK(exchange(host[0], host[1]));
    SAME(host[1][0], 7);
    MPI_Finalize();
    return failures > 0;
}
