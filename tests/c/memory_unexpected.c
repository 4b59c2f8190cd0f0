/* Rank 0 sends messages that rank 1 has not asked for; the address space of rank 1 is limited, and its wait takes what
 * comes before the message that it waits for. tests/jobs/memory_limit.py reads what the job says.
 * test: only=build */
#include "check.h"
#include <sys/resource.h>

enum { BYTES = 16000, MANY = 50000, FLOOD = 3, AWAITED = 4 };

/* Kilobytes of address space in use. */
static long address_space(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return pages * 4;
}

int main(int argc, char **argv)
{
    static char message[BYTES];
    start(&argc, &argv);
    meet();
    if (rank == 1) {
        rlim_t most = (rlim_t)(address_space() + (100 << 10)) << 10;
        struct rlimit limit = {most, most};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        OK(MPI_Recv(message, BYTES, MPI_CHAR, 0, AWAITED, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
        for (int at = 0; at < MANY; at++)
            OK(MPI_Send(message, BYTES, MPI_CHAR, 1, FLOOD, MPI_COMM_WORLD));
        OK(MPI_Send(message, 0, MPI_CHAR, 1, AWAITED, MPI_COMM_WORLD));
    }
    return finish();
}
