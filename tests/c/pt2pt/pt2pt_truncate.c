/* A message longer than the buffer: MPI_ERR_TRUNCATE, no write beyond the buffer, no error at the sender, and the next
 * message arrives; for every size, posted before and after the message.
 * test: ranks=1,2,3,4 */
#include "../check.h"

static unsigned char out[200000], in[200000];

static void truncate(int sent, int room, int posted)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, value = rank, other = -1;
    MPI_Request receive, send;
    MPI_Status status;
    memset(in, 0x3c, sizeof in);
    fill(out, (size_t)sent, (unsigned)rank);
    if (posted) {
        OK(MPI_Irecv(in, room, MPI_BYTE, from, 1, MPI_COMM_WORLD, &receive));
        meet();
    }
    OK(MPI_Isend(out, sent, MPI_BYTE, to, 1, MPI_COMM_WORLD, &send));
    if (posted)
        CLASS(MPI_Wait(&receive, &status), MPI_ERR_TRUNCATE);
    else
        CLASS(MPI_Recv(in, room, MPI_BYTE, from, 1, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE);
    SAME(status.MPI_SOURCE, from);
    SAME(status.MPI_TAG, 1);
    for (size_t i = (size_t)room; i < sizeof in; i++)
        if (in[i] != 0x3c) {
            fail(__LINE__, "%d bytes into %d: byte %zu is written", sent, room, i);
            break;
        }
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    OK(MPI_Sendrecv(&value, 1, MPI_INT, to, 1, &other, 1, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(other, from);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    static const int sizes[] = {1, 8, 48, 49, 4096, 8192, 8193, 32768, 100000, 200000};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int posted = 0; posted < 2; posted++) {
            truncate(sizes[i], sizes[i] - 1, posted);
            truncate(sizes[i], sizes[i] / 2, posted);
            truncate(sizes[i], 0, posted);
        }
    /* Sendrecv reports the truncation too, and its send half is complete. */
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    CLASS(MPI_Sendrecv(out, 100, MPI_BYTE, to, 2, in, 99, MPI_BYTE, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    CLASS(MPI_Sendrecv(out, 50000, MPI_BYTE, to, 2, in, 49999, MPI_BYTE, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
          MPI_ERR_TRUNCATE);
    /* A derived type: 10 ints into 9. */
    MPI_Datatype type;
    OK(MPI_Type_vector(9, 1, 2, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    memset(in, 0x3c, sizeof in);
    MPI_Request request;
    OK(MPI_Isend(out, 10, MPI_INT, to, 3, MPI_COMM_WORLD, &request));
    CLASS(MPI_Recv(in, 1, type, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    SAME(in[68], 0x3c);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Type_free(&type));
    meet();
    return finish();
}
