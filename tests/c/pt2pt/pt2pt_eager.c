/* Messages of up to 64 KiB are sent eagerly, whatever the cost model has learned: two ranks that both send before they
 * receive do not deadlock. MPI guarantees that for no size; docs/settings.md gives the limit of this library.
 * test: ranks=2 timeout=120 variants=none */
#include "../check.h"

int main(int argc, char **argv)
{
    static char out[65536], into[65536];
    start(&argc, &argv);
    for (int bytes = 4096; bytes <= 65536; bytes *= 2)
        for (int i = 0; i < 3000; i++) {
            out[i % bytes] = (char)i;
            OK(MPI_Send(out, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD));
            OK(MPI_Recv(into, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            SAME(into[i % bytes], (char)i);
        }
    return finish();
}
