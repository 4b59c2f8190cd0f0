/* Statuses: source, tag and size of every message, fields that stay unchanged, counts in elements of other types,
 * statuses set by the program, and MPI_PROC_NULL.
 * test: ranks=1,2,3,4 */
#include "../check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, count, flag;
    MPI_Status status;
    MPI_Count large;
    char data[4096] = {0}, in[4096];
    static const int sizes[] = {0, 1, 4, 7, 8, 12, 48, 49, 4096};

    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        MPI_Request request;
        memset(&status, 0x5a, sizeof status);
        int before = status.MPI_ERROR;
        OK(MPI_Sendrecv(data, sizes[i], MPI_BYTE, to, 3, in, sizeof in, MPI_BYTE, from, 3, MPI_COMM_WORLD, &status));
        STATUS(status, from, 3, sizes[i]);
        SAME(status.MPI_ERROR, before);
        memset(&status, 0x5a, sizeof status);
        OK(MPI_Irecv(data, sizeof data, MPI_BYTE, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &request));
        OK(MPI_Send(data, sizes[i], MPI_BYTE, to, 4, MPI_COMM_WORLD));
        OK(MPI_Wait(&request, &status));
        STATUS(status, from, 4, sizes[i]);
        SAME(status.MPI_ERROR, before);
        memset(&status, 0x5a, sizeof status);
        OK(MPI_Isend(data, sizes[i], MPI_BYTE, to, 6, MPI_COMM_WORLD, &request));
        OK(MPI_Recv(data, sizeof data, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        STATUS(status, from, 6, sizes[i]);
        SAME(status.MPI_ERROR, before);
        OK(MPI_Test_cancelled(&status, &flag));
        SAME(flag, 0);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));

        /* Counts in other types. */
        OK(MPI_Get_count(&status, MPI_INT, &count));
        SAME(count, sizes[i] % 4 ? MPI_UNDEFINED : sizes[i] / 4);
        OK(MPI_Get_count_c(&status, MPI_DOUBLE, &large));
        SAME(large, sizes[i] % 8 ? MPI_UNDEFINED : sizes[i] / 8);
        OK(MPI_Get_elements(&status, MPI_SHORT, &count));
        SAME(count, sizes[i] % 2 ? MPI_UNDEFINED : sizes[i] / 2);
        meet();
    }

    /* Elements of {int, double}, which has 12 bytes without padding. */
    MPI_Datatype pair, parts[] = {MPI_INT, MPI_DOUBLE};
    int lengths[] = {1, 1};
    MPI_Aint places[] = {0, 8};
    OK(MPI_Type_create_struct(2, lengths, places, parts, &pair));
    OK(MPI_Type_commit(&pair));
    OK(MPI_Sendrecv(data, 16, MPI_BYTE, to, 7, in, 24, MPI_BYTE, from, 7, MPI_COMM_WORLD, &status));
    OK(MPI_Get_count(&status, pair, &count));
    SAME(count, MPI_UNDEFINED);
    OK(MPI_Get_elements(&status, pair, &count));
    SAME(count, 3); /* int, double, int */
    OK(MPI_Type_free(&pair));

    /* MPI_PROC_NULL. */
    MPI_Request request;
    memset(&status, 0x5a, sizeof status);
    OK(MPI_Recv(data, 5, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status));
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    OK(MPI_Irecv(data, 5, MPI_BYTE, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, &status));
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    OK(MPI_Send(data, 5, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD));
    OK(MPI_Ssend(data, 5, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD));
    OK(MPI_Isend(data, 5, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Recv_init(data, 5, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &request));
    for (int i = 0; i < 3; i++) {
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, &status));
        STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    }
    OK(MPI_Request_free(&request));
    OK(MPI_Send_init(data, 5, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &request));
    OK(MPI_Start(&request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Request_free(&request));
    OK(MPI_Sendrecv_replace(data, 5, MPI_BYTE, MPI_PROC_NULL, 1, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status));
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);

    /* Statuses set by the program. */
    OK(MPI_Status_set_elements(&status, MPI_INT, 10));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    SAME(count, 10);
    OK(MPI_Status_set_elements_c(&status, MPI_BYTE, (MPI_Count)5000000000));
    OK(MPI_Get_count_c(&status, MPI_BYTE, &large));
    SAME(large, 5000000000);
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    SAME(count, MPI_UNDEFINED);
    OK(MPI_Status_set_cancelled(&status, 1));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 1);
    return finish();
}
