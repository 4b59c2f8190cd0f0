/* Converts handles and statuses to their Fortran form and back. Valid C from C89 and C++ from C++11. Runs on every
 * library with the ABI, with any number of ranks. */
struct MPI_Status; /* programs without the header declare it this way */

#include <mpi.h>
#include <stdio.h>

static int checks, failures;

static void check(int good, const char *what)
{
    checks++;
    if (!good) {
        failures++;
        fprintf(stderr, "f2c: not so: %s\n", what);
    }
}

#define CHECK(condition) check(condition, #condition)

/* Both names of a conversion return the handle and the same integer. */
#define ROUND(kind, handle)                                                  \
    do {                                                                     \
        MPI_Fint number = MPI_##kind##_c2f(handle);                          \
        check(MPI_##kind##_f2c(number) == (handle), #kind ": " #handle);     \
        check(PMPI_##kind##_c2f(handle) == number, "P" #kind ": " #handle);  \
        check(PMPI_##kind##_f2c(number) == (handle), "P" #kind ": " #handle); \
    } while (0)

static void add(void *in, void *inout, int *len, MPI_Datatype *type)
{
    int i;

    (void)type;
    for (i = 0; i < *len; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void round_predefined(void)
{
    ROUND(Comm, MPI_COMM_WORLD);
    ROUND(Comm, MPI_COMM_SELF);
    ROUND(Comm, MPI_COMM_NULL);
    ROUND(Group, MPI_GROUP_EMPTY);
    ROUND(Group, MPI_GROUP_NULL);
    ROUND(Type, MPI_INT);
    ROUND(Type, MPI_DOUBLE);
    ROUND(Type, MPI_DATATYPE_NULL);
    ROUND(Op, MPI_SUM);
    ROUND(Op, MPI_OP_NULL);
    ROUND(Info, MPI_INFO_ENV);
    ROUND(Info, MPI_INFO_NULL);
    ROUND(Errhandler, MPI_ERRORS_RETURN);
    ROUND(Errhandler, MPI_ERRHANDLER_NULL);
    ROUND(Request, MPI_REQUEST_NULL);
    ROUND(Message, MPI_MESSAGE_NULL);
    ROUND(Message, MPI_MESSAGE_NO_PROC);
    ROUND(Win, MPI_WIN_NULL);
    ROUND(File, MPI_FILE_NULL);
    ROUND(Session, MPI_SESSION_NULL);
}

static void round_new(void)
{
    MPI_Comm comm;
    MPI_Group group;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Info info;
    MPI_Errhandler errhandler;
    int size, of_copy, commutes, keys;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    ROUND(Comm, comm);
    MPI_Comm_size(comm, &size);
    MPI_Comm_size(MPI_Comm_f2c(MPI_Comm_c2f(comm)), &of_copy);
    CHECK(of_copy == size);
    MPI_Comm_group(comm, &group);
    ROUND(Group, group);
    MPI_Comm_get_errhandler(comm, &errhandler);
    ROUND(Errhandler, errhandler);
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_commit(&type);
    ROUND(Type, type);
    MPI_Type_size(MPI_Type_f2c(MPI_Type_c2f(type)), &size);
    CHECK(size == 12);
    MPI_Op_create(add, 0, &op);
    ROUND(Op, op);
    MPI_Op_commutative(MPI_Op_f2c(MPI_Op_c2f(op)), &commutes);
    CHECK(commutes == 0);
    MPI_Info_create(&info);
    MPI_Info_set(info, "key", "value");
    ROUND(Info, info);
    MPI_Info_get_nkeys(MPI_Info_f2c(MPI_Info_c2f(info)), &keys);
    CHECK(keys == 1);
    MPI_Info_free(&info);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    MPI_Errhandler_free(&errhandler);
    MPI_Group_free(&group);
    MPI_Comm_free(&comm);
}

static void round_messages(void)
{
    MPI_Request request;
    MPI_Message message;
    MPI_Status status, copy;
    MPI_F08_status f08;
    MPI_Fint numbers[MPI_F_STATUS_SIZE], again[MPI_F_STATUS_SIZE];
    int data[4] = {1, 2, 3, 4}, got[4] = {0, 0, 0, 0}, count, i;

    MPI_Isend(data, 4, MPI_INT, 0, 7, MPI_COMM_SELF, &request);
    ROUND(Request, request);
    MPI_Mprobe(0, 7, MPI_COMM_SELF, &message, &status);
    ROUND(Message, message);
    message = MPI_Message_f2c(MPI_Message_c2f(message));
    MPI_Mrecv(got, 4, MPI_INT, &message, &status);
    request = MPI_Request_f2c(MPI_Request_c2f(request));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(got[3] == 4);

    status.MPI_ERROR = MPI_ERR_TAG;
    CHECK(MPI_Status_c2f(&status, numbers) == MPI_SUCCESS);
    CHECK(numbers[MPI_F_SOURCE] == 0 && numbers[MPI_F_TAG] == 7 && numbers[MPI_F_ERROR] == MPI_ERR_TAG);
    CHECK(MPI_Status_f2c(numbers, &copy) == MPI_SUCCESS);
    MPI_Get_count(&copy, MPI_INT, &count);
    CHECK(copy.MPI_SOURCE == 0 && copy.MPI_TAG == 7 && copy.MPI_ERROR == MPI_ERR_TAG && count == 4);
    CHECK(MPI_Status_c2f08(&copy, &f08) == MPI_SUCCESS && MPI_Status_f082f(&f08, again) == MPI_SUCCESS);
    for (i = 0; i < MPI_F_STATUS_SIZE; i++)
        check(numbers[i] == again[i], "a status by way of Fortran 2008");
    CHECK(MPI_Status_f2f08(again, &f08) == MPI_SUCCESS && MPI_Status_f082c(&f08, &copy) == MPI_SUCCESS);
    MPI_Get_count(&copy, MPI_INT, &count);
    CHECK(count == 4);
    CHECK(PMPI_Status_c2f(&copy, again) == MPI_SUCCESS && PMPI_Status_f2c(again, &copy) == MPI_SUCCESS);
    CHECK(MPI_Status_c2f(MPI_STATUS_IGNORE, numbers) == MPI_ERR_ARG);
    CHECK(MPI_Status_f2c(NULL, &copy) == MPI_ERR_ARG);
}

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    round_predefined();
    round_new();
    round_messages();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && failures == 0)
        printf("f2c: %d checks passed\n", checks);
    MPI_Finalize();
    return failures != 0;
}
