/* Wrong arguments to datatype constructors give the right error class. Any number of ranks. */
#include "../check.h"

#define EXPECT(class, call) CLASS(call, class)

/* A message to MPI_PROC_NULL needs no valid type; other messages do. */
static void check_proc_null(void)
{
    const MPI_Datatype no = MPI_DATATYPE_NULL;
    const int null = MPI_PROC_NULL;
    int data[2] = {1, 2};
    MPI_Status status;
    MPI_Request requests[2];
    EXPECT(MPI_SUCCESS, MPI_Send(NULL, 0, no, null, 0, MPI_COMM_WORLD));
    EXPECT(MPI_SUCCESS, MPI_Send(data, 2, no, null, 0, MPI_COMM_WORLD));
    EXPECT(MPI_SUCCESS, MPI_Send_c(NULL, 0, no, null, 0, MPI_COMM_WORLD));
    EXPECT(MPI_SUCCESS, MPI_Ssend(NULL, 0, no, null, 0, MPI_COMM_WORLD));
    EXPECT(MPI_SUCCESS, MPI_Rsend(NULL, 0, no, null, 0, MPI_COMM_WORLD));
    EXPECT(MPI_SUCCESS, MPI_Bsend(NULL, 0, no, null, 0, MPI_COMM_WORLD));
    status.MPI_TAG = 9;
    EXPECT(MPI_SUCCESS, MPI_Recv(data, 2, no, null, 0, MPI_COMM_WORLD, &status));
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    EXPECT(MPI_SUCCESS, MPI_Isend(NULL, 0, no, null, 0, MPI_COMM_WORLD, &requests[0]));
    EXPECT(MPI_SUCCESS, MPI_Irecv(NULL, 0, no, null, 0, MPI_COMM_WORLD, &requests[1]));
    EXPECT(MPI_SUCCESS, MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    EXPECT(MPI_SUCCESS, MPI_Ibsend(NULL, 0, no, null, 0, MPI_COMM_WORLD, &requests[0]));
    EXPECT(MPI_SUCCESS, MPI_Issend(NULL, 0, no, null, 0, MPI_COMM_WORLD, &requests[1]));
    EXPECT(MPI_SUCCESS, MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    EXPECT(MPI_SUCCESS, MPI_Send_init(NULL, 0, no, null, 0, MPI_COMM_WORLD, &requests[0]));
    EXPECT(MPI_SUCCESS, MPI_Recv_init(NULL, 0, no, null, 0, MPI_COMM_WORLD, &requests[1]));
    EXPECT(MPI_SUCCESS, MPI_Startall(2, requests));
    EXPECT(MPI_SUCCESS, MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    EXPECT(MPI_SUCCESS, MPI_Request_free(&requests[0]));
    EXPECT(MPI_SUCCESS, MPI_Request_free(&requests[1]));
    EXPECT(MPI_SUCCESS, MPI_Sendrecv(NULL, 0, no, null, 0, NULL, 0, no, null, 0, MPI_COMM_WORLD, &status));
    EXPECT(MPI_SUCCESS, MPI_Sendrecv_replace(NULL, 0, no, null, 0, null, 0, MPI_COMM_WORLD, &status));
    EXPECT(MPI_SUCCESS, MPI_Isendrecv(NULL, 0, no, null, 0, NULL, 0, no, null, 0, MPI_COMM_WORLD, requests));
    EXPECT(MPI_SUCCESS, MPI_Wait(requests, MPI_STATUS_IGNORE));
    /* One half has a real peer. */
    EXPECT(MPI_SUCCESS, MPI_Sendrecv(data, 1, MPI_INT, 0, 3, data + 1, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &status));
    EXPECT(MPI_ERR_TYPE, MPI_Sendrecv(NULL, 0, no, null, 0, data, 0, no, 0, 0, MPI_COMM_SELF, &status));
    EXPECT(MPI_ERR_TYPE, MPI_Sendrecv_replace(data, 1, no, 0, 0, null, 0, MPI_COMM_SELF, &status));
    EXPECT(MPI_ERR_TYPE, MPI_Sendrecv_replace(data, 1, no, null, 0, 0, 0, MPI_COMM_SELF, &status));
    /* Other errors are still detected. */
    EXPECT(MPI_ERR_TYPE, MPI_Send(data, 1, no, 0, 0, MPI_COMM_SELF));
    EXPECT(MPI_ERR_TYPE, MPI_Recv(data, 1, no, MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &status));
    EXPECT(MPI_ERR_COUNT, MPI_Send(data, -1, no, null, 0, MPI_COMM_SELF));
    EXPECT(MPI_ERR_TAG, MPI_Send(data, 1, no, null, -5, MPI_COMM_SELF));
    EXPECT(MPI_ERR_COMM, MPI_Send(data, 1, no, null, 0, MPI_COMM_NULL));
}

/* Queries of predefined types are answered without entering the library; their errors are detected all the same. */
static void check_queries(void)
{
    int n;
    MPI_Aint aint;
    MPI_Status status;
    memset(&status, 0, sizeof status);
    EXPECT(MPI_SUCCESS, MPI_Status_set_elements(&status, MPI_BYTE, 12));
    EXPECT(MPI_ERR_ARG, MPI_Type_size(MPI_DOUBLE, NULL));
    EXPECT(MPI_ERR_ARG, MPI_Type_get_extent(MPI_DOUBLE, &aint, NULL));
    EXPECT(MPI_ERR_ARG, MPI_Type_get_extent(MPI_DOUBLE, NULL, &aint));
    EXPECT(MPI_ERR_ARG, MPI_Type_get_true_extent(MPI_DOUBLE, NULL, &aint));
    EXPECT(MPI_ERR_ARG, MPI_Get_count(MPI_STATUS_IGNORE, MPI_INT, &n));
    EXPECT(MPI_ERR_ARG, MPI_Get_count(&status, MPI_INT, NULL));
    EXPECT(MPI_ERR_TYPE, MPI_Get_count(&status, MPI_DATATYPE_NULL, &n));
    EXPECT(MPI_ERR_TYPE, MPI_Type_size((MPI_Datatype)(MPI_Aint)517, &n));
    EXPECT(MPI_ERR_TYPE, MPI_Type_size((MPI_Datatype)(MPI_Aint)1025, &n));
    EXPECT(MPI_ERR_COMM, MPI_Comm_rank(MPI_COMM_NULL, &n));
    EXPECT(MPI_ERR_COMM, MPI_Comm_size((MPI_Comm)MPI_INT, &n));
    EXPECT(MPI_ERR_ARG, MPI_Comm_rank(MPI_COMM_WORLD, NULL));
    EXPECT(MPI_ERR_ARG, MPI_Comm_size(MPI_COMM_WORLD, NULL));
    EXPECT(MPI_SUCCESS, MPI_Get_count(&status, MPI_DOUBLE, &n));
    SAME(n, MPI_UNDEFINED);
    EXPECT(MPI_SUCCESS, MPI_Get_count(&status, MPI_INT, &n));
    SAME(n, 3);
    EXPECT(MPI_SUCCESS, MPI_Get_count(&status, MPI_SHORT_INT, &n));
    SAME(n, 2);
    EXPECT(MPI_SUCCESS, MPI_Get_elements(&status, MPI_SHORT_INT, &n));
    SAME(n, 4);
    EXPECT(MPI_SUCCESS, MPI_Get_elements(&status, MPI_SHORT, &n));
    SAME(n, 6);
    EXPECT(MPI_SUCCESS, MPI_Get_elements(&status, MPI_DOUBLE_INT, &n));
    SAME(n, 2);
    MPI_Count large;
    EXPECT(MPI_SUCCESS, MPI_Status_set_elements_c(&status, MPI_BYTE, ((MPI_Count)1 << 40) + 8));
    EXPECT(MPI_SUCCESS, MPI_Get_count(&status, MPI_BYTE, &n));
    SAME(n, MPI_UNDEFINED);
    EXPECT(MPI_SUCCESS, MPI_Get_count_c(&status, MPI_DOUBLE, &large));
    SAME(large, ((MPI_Count)1 << 37) + 1);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);

    MPI_Datatype t, freed;
    int size, one[] = {1}, minus[] = {-1}, zero[] = {0}, combiner, n;
    MPI_Aint at[] = {0}, aint;
    MPI_Datatype null[] = {MPI_DATATYPE_NULL}, types[1];

    EXPECT(MPI_ERR_TYPE, MPI_Type_contiguous(1, MPI_DATATYPE_NULL, &t));
    EXPECT(MPI_ERR_TYPE, MPI_Type_size(MPI_DATATYPE_NULL, &size));
    EXPECT(MPI_ERR_TYPE, MPI_Type_get_extent(MPI_DATATYPE_NULL, &aint, &aint));
    EXPECT(MPI_ERR_TYPE, MPI_Type_create_struct(1, one, at, null, &t));
    EXPECT(MPI_ERR_COUNT, MPI_Type_contiguous(-1, MPI_INT, &t));
    EXPECT(MPI_ERR_COUNT, MPI_Type_vector(-1, 1, 1, MPI_INT, &t));
    EXPECT(MPI_ERR_COUNT, MPI_Type_indexed(-1, one, one, MPI_INT, &t));
    EXPECT(MPI_ERR_ARG, MPI_Type_vector(1, -1, 1, MPI_INT, &t));
    EXPECT(MPI_ERR_ARG, MPI_Type_indexed(1, minus, zero, MPI_INT, &t));
    EXPECT(MPI_ERR_ARG, MPI_Type_indexed(1, NULL, zero, MPI_INT, &t));
    EXPECT(MPI_ERR_ARG, MPI_Type_contiguous(1, MPI_INT, NULL));
    EXPECT(MPI_ERR_ARG, MPI_Type_create_subarray(1, one, one, one, MPI_ORDER_C, MPI_INT, &t));
    EXPECT(MPI_ERR_ARG, MPI_Type_create_subarray(1, one, one, zero, -7, MPI_INT, &t));
    EXPECT(MPI_ERR_ARG, MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 5, &t));
    EXPECT(MPI_ERR_TYPE, MPI_Type_get_contents(MPI_INT, 0, 0, 0, one, at, types));

    /* A predefined type cannot be freed, and is valid after the attempt. */
    t = MPI_INT;
    EXPECT(MPI_ERR_TYPE, MPI_Type_free(&t));
    EXPECT(MPI_SUCCESS, MPI_Type_size(MPI_INT, &size));

    /* The handle of a freed type is not reused for the next one. */
    EXPECT(MPI_SUCCESS, MPI_Type_contiguous(3, MPI_INT, &t));
    freed = t;
    EXPECT(MPI_SUCCESS, MPI_Type_free(&t));
    EXPECT(MPI_SUCCESS, MPI_Type_contiguous(3, MPI_INT, &t));
    EXPECT(MPI_ERR_TYPE, MPI_Type_size(freed, &size));
    EXPECT(MPI_ERR_TYPE, MPI_Type_commit(&freed));
    EXPECT(MPI_ERR_ARG, MPI_Type_get_contents(t, 0, 0, 0, one, at, types));
    EXPECT(MPI_SUCCESS, MPI_Type_get_envelope(t, &n, &n, &n, &combiner));

    /* An uncommitted type cannot be sent. */
    int buffer[3] = {0};
    EXPECT(MPI_ERR_TYPE, MPI_Send(buffer, 1, t, MPI_PROC_NULL, 0, MPI_COMM_SELF));
    EXPECT(MPI_SUCCESS, MPI_Type_commit(&t));
    EXPECT(MPI_SUCCESS, MPI_Send(buffer, 1, t, MPI_PROC_NULL, 0, MPI_COMM_SELF));
    EXPECT(MPI_SUCCESS, MPI_Type_free(&t));

    check_proc_null();
    check_queries();
    return finish();
}
