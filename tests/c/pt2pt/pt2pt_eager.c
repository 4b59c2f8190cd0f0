/* Messages of up to 64 KiB leave without being asked for, whatever is learnt of their ways: two ranks that both send
 * before they receive come to an end. (MPI promises that of no size; this library says which, in docs/settings.md.)
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
