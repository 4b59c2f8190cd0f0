/* Uses the header as programs do: constants in initialisers, callbacks, the preprocessor. */
#include <mpi.h>
#include <mpi.h>
#include <stddef.h>

#if MPI_VERSION != 5 || MPI_SUBVERSION != 0 || MPI_ABI_VERSION != 1
#error "versions"
#endif

static MPI_Comm world = MPI_COMM_WORLD;
static const MPI_Datatype types[] = { MPI_INT, MPI_DOUBLE, MPI_DATATYPE_NULL };
static char name[MPI_MAX_PROCESSOR_NAME];

static void add(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)len, (void)type;
}

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra, (void)in, (void)out;
    *flag = 1;
    return MPI_SUCCESS;
}

static void handle(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
}

int use(void);
int use(void)
{
    MPI_Op op;
    MPI_Errhandler handler;
    MPI_Status status = { 0, 0, MPI_SUCCESS, { 0 } };
    int key, size = 0;

    switch (status.MPI_ERROR) {
    case MPI_SUCCESS:
    case MPI_ERR_TRUNCATE:
        break;
    }
    MPI_Op_create(add, 1, &op);
    MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key, (void *)0);
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Pcontrol(1, name, 2.0);
    MPI_Recv(MPI_BOTTOM, 0, types[0], MPI_ANY_SOURCE, MPI_ANY_TAG, world, MPI_STATUS_IGNORE);
    return PMPI_Comm_size(world, &size) + size + (op == MPI_OP_NULL);
}
