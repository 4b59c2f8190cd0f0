/* MPI_IN_PLACE and MPI_BUFFER_AUTOMATIC are rejected where MPI 5.0 does not allow them as buffers (section 2.5.4), by
   the immediate paths too. No memory is accessed at these addresses.
   test: ranks=1,2,3 mistakes=yes */
#include "../check.h"

static void test_messages(MPI_Comm comm, void *wrong, int count)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Message message;
    int data[64] = {0}, room[64];
    CLASS(MPI_Send(wrong, count, MPI_INT, rank, 0, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Ssend(wrong, count, MPI_INT, rank, 0, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Rsend(wrong, count, MPI_INT, rank, 0, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Bsend(wrong, count, MPI_INT, rank, 0, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Isend(wrong, count, MPI_INT, rank, 0, comm, &request), MPI_ERR_BUFFER);
    CLASS(MPI_Issend(wrong, count, MPI_INT, rank, 0, comm, &request), MPI_ERR_BUFFER);
    CLASS(MPI_Send_init(wrong, count, MPI_INT, rank, 0, comm, &request), MPI_ERR_BUFFER);
    CLASS(MPI_Psend_init(wrong, 1, count, MPI_INT, rank, 0, comm, MPI_INFO_NULL, &request), MPI_ERR_BUFFER);
    CLASS(MPI_Precv_init(wrong, 1, count, MPI_INT, rank, 0, comm, MPI_INFO_NULL, &request), MPI_ERR_BUFFER);
    CLASS(MPI_Recv(wrong, count, MPI_INT, rank, 0, comm, &status), MPI_ERR_BUFFER);
    CLASS(MPI_Recv(wrong, count, MPI_INT, MPI_ANY_SOURCE, 0, comm, &status), MPI_ERR_BUFFER);
    CLASS(MPI_Irecv(wrong, count, MPI_INT, rank, 0, comm, &request), MPI_ERR_BUFFER);
    CLASS(MPI_Recv_init(wrong, count, MPI_INT, rank, 0, comm, &request), MPI_ERR_BUFFER);
    CLASS(MPI_Sendrecv(wrong, count, MPI_INT, rank, 0, room, 64, MPI_INT, rank, 0, comm, &status), MPI_ERR_BUFFER);
    CLASS(MPI_Sendrecv(data, count, MPI_INT, rank, 0, wrong, 64, MPI_INT, rank, 0, comm, &status), MPI_ERR_BUFFER);
    CLASS(MPI_Sendrecv_replace(wrong, count, MPI_INT, rank, 0, rank, 0, comm, &status), MPI_ERR_BUFFER);
    /* A message that has arrived before is still there. */
    OK(MPI_Isend(data, count, MPI_INT, rank, 1, comm, &request));
    CLASS(MPI_Recv(wrong, count, MPI_INT, rank, 1, comm, &status), MPI_ERR_BUFFER);
    OK(MPI_Mprobe(rank, 1, comm, &message, &status));
    CLASS(MPI_Mrecv(wrong, count, MPI_INT, &message, &status), MPI_ERR_BUFFER);
    if (message != MPI_MESSAGE_NULL)
        OK(MPI_Mrecv(room, count, MPI_INT, &message, &status));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    /* Without data the buffer is not significant. */
    OK(MPI_Sendrecv(wrong, 0, MPI_INT, rank, 2, wrong, 0, MPI_INT, rank, 2, comm, &status));
}

static void test_packing(void *wrong, int count)
{
    int data[64] = {0}, position = 0;
    char packed[256];
    CLASS(MPI_Pack(wrong, count, MPI_INT, packed, sizeof packed, &position, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    CLASS(MPI_Pack(data, count, MPI_INT, wrong, 256, &position, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    CLASS(MPI_Unpack(packed, sizeof packed, &position, wrong, count, MPI_INT, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    CLASS(MPI_Unpack(wrong, 256, &position, data, count, MPI_INT, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    CLASS(MPI_Reduce_local(wrong, data, count, MPI_INT, MPI_SUM), MPI_ERR_BUFFER);
    CLASS(MPI_Reduce_local(data, wrong, count, MPI_INT, MPI_SUM), MPI_ERR_BUFFER);
}

static void test_window(void *wrong, int count)
{
    int *base, data[64] = {0}, zero = 0;
    MPI_Win win, made;
    OK(MPI_Win_allocate(64 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Put(data, 1, MPI_INT, rank, 0, 1, MPI_INT, win));
    OK(MPI_Win_flush(rank, win));
    CLASS(MPI_Put(wrong, count, MPI_INT, rank, 0, count, MPI_INT, win), MPI_ERR_BUFFER);
    CLASS(MPI_Get(wrong, count, MPI_INT, rank, 0, count, MPI_INT, win), MPI_ERR_BUFFER);
    CLASS(MPI_Accumulate(wrong, count, MPI_INT, rank, 0, count, MPI_INT, MPI_SUM, win), MPI_ERR_BUFFER);
    CLASS(MPI_Get_accumulate(wrong, count, MPI_INT, data, count, MPI_INT, rank, 0, count, MPI_INT, MPI_SUM, win),
          MPI_ERR_BUFFER);
    CLASS(MPI_Get_accumulate(data, count, MPI_INT, wrong, count, MPI_INT, rank, 0, count, MPI_INT, MPI_SUM, win),
          MPI_ERR_BUFFER);
    for (int again = 0; again < 2; again++) {
        CLASS(MPI_Fetch_and_op(wrong, data, MPI_INT, rank, 0, MPI_SUM, win), MPI_ERR_BUFFER);
        CLASS(MPI_Fetch_and_op(data, wrong, MPI_INT, rank, 0, MPI_SUM, win), MPI_ERR_BUFFER);
        CLASS(MPI_Compare_and_swap(wrong, &zero, data, MPI_INT, rank, 0, win), MPI_ERR_BUFFER);
        CLASS(MPI_Compare_and_swap(&zero, wrong, data, MPI_INT, rank, 0, win), MPI_ERR_BUFFER);
        CLASS(MPI_Compare_and_swap(&zero, &zero, wrong, MPI_INT, rank, 0, win), MPI_ERR_BUFFER);
        OK(MPI_Fetch_and_op(data, data + 1, MPI_INT, rank, 0, MPI_SUM, win));
        OK(MPI_Compare_and_swap(&zero, &zero, data, MPI_INT, rank, 0, win));
        OK(MPI_Fetch_and_op(wrong, data, MPI_INT, rank, 0, MPI_NO_OP, win));
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));
    CLASS(MPI_Win_create(wrong, 4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made), MPI_ERR_BASE);
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    CLASS(MPI_Win_attach(win, wrong, 4), MPI_ERR_BASE);
    OK(MPI_Win_free(&win));
}

static void test_collectives(MPI_Comm comm, void *wrong, int count)
{
    int data[64 * 4] = {0};
    CLASS(MPI_Bcast(wrong, count, MPI_INT, 0, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Allreduce(data, wrong, count, MPI_INT, MPI_SUM, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Allgather(data, count, MPI_INT, wrong, count, MPI_INT, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Alltoall(data, count, MPI_INT, wrong, count, MPI_INT, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Scan(data, wrong, count, MPI_INT, MPI_SUM, comm), MPI_ERR_BUFFER);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    void *special[] = {MPI_IN_PLACE, MPI_BUFFER_AUTOMATIC};
    int counts[] = {1, 2, 60};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) {
            test_messages(comm, special[i], counts[j]);
            test_packing(special[i], counts[j]);
            test_window(special[i], counts[j]);
            test_collectives(comm, special[i], counts[j]);
        }
    CLASS(MPI_Buffer_attach(MPI_IN_PLACE, 100), MPI_ERR_BUFFER);
    MPI_Comm_free(&comm);
    return finish();
}
