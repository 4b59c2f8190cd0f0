/* Sending to a rank that has finalized is an error that returns, not a hang; what it sent before it left arrives.
 * test: ranks=2,3 */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int value = 7;
    static unsigned char big[100000];
    if (rank == 1) {
        /* Its last message is on its way when it leaves. */
        OK(MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
        return finish();
    }
    if (rank == 0) {
        int code;
        OK(MPI_Recv(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        SAME(value, 7);
        /* It has left soon; until then messages go out and are lost. */
        do
            code = MPI_Send(&value, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
        while (code == MPI_SUCCESS);
        SAME(class_of(code), MPI_ERR_OTHER);
        CLASS(MPI_Send(big, sizeof big, MPI_BYTE, 1, 3, MPI_COMM_WORLD), MPI_ERR_OTHER);
        CLASS(MPI_Ssend(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD), MPI_ERR_OTHER);
    }
    MPI_Comm_free(&meeting);
    MPI_Finalize();
    return failures ? 1 : 0;
}
