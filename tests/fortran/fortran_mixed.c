/* C functions that Fortran calls, and that call MPI with what Fortran has made. */
#include <mpi.h>
#include <stdint.h>

/* Describes Fortran's types before the Fortran library does. Returns the first error code. */
void c_describe_(MPI_Fint *yes, MPI_Fint *no, MPI_Fint *code)
{
    MPI_Info types;
    *code = MPI_Abi_set_fortran_booleans(sizeof *yes, yes, no);
    MPI_Info_create(&types);
    MPI_Info_set(types, "mpi_integer_size", "4");
    MPI_Info_set(types, "mpi_logical_size", "4");
    MPI_Info_set(types, "mpi_real_size", "4");
    MPI_Info_set(types, "mpi_double_precision_size", "8");
    if (*code == MPI_SUCCESS)
        *code = MPI_Abi_set_fortran_info(types);
    MPI_Info_free(&types);
}

void c_ring_(MPI_Fint *comm, MPI_Fint *right, MPI_Fint *left, MPI_Fint *value, MPI_Fint *status)
{
    MPI_Comm c = MPI_Comm_f2c(*comm);
    MPI_Status s;
    MPI_Sendrecv_replace(value, 1, MPI_INT, *right, 3, *left, 3, c, &s);
    MPI_Status_c2f(&s, status);
}

/* A request of Fortran, ended in C; its status goes back. Returns the count of integers. */
void c_wait_(MPI_Fint *request, MPI_Fint *status, MPI_Fint *count)
{
    MPI_Request r = MPI_Request_f2c(*request);
    MPI_Status s;
    MPI_Wait(&r, &s);
    int n;
    MPI_Get_count(&s, MPI_Type_f2c(537), &n);
    *count = n;
    *request = MPI_Request_c2f(r);
    MPI_Status_c2f(&s, status);
}

/* A status of Fortran, read in C. */
void c_status_(MPI_Fint *status, MPI_Fint *source, MPI_Fint *tag, MPI_Fint *count)
{
    MPI_Status s;
    MPI_Status_f2c(status, &s);
    *source = s.MPI_SOURCE;
    *tag = s.MPI_TAG;
    int n;
    MPI_Get_count(&s, MPI_INT, &n);
    *count = n;
}

/* Whether an address is that of a constant of Fortran's: 1 to ignore a status, 2 to ignore statuses, 0 neither. */
void c_ignores_(MPI_Fint *status, MPI_Fint *which)
{
    *which = status == MPI_F_STATUS_IGNORE ? 1 : status == MPI_F_STATUSES_IGNORE ? 2 : 0;
}

void c_ignores_f08_(MPI_F08_status *status, MPI_Fint *which)
{
    *which = status == MPI_F08_STATUS_IGNORE ? 1 : status == MPI_F08_STATUSES_IGNORE ? 2 : 0;
}

/* For an array of statuses: a compiler accepts one rank under one name. */
void c_ignores_all_f08_(MPI_F08_status *statuses, MPI_Fint *which)
{
    c_ignores_f08_(statuses, which);
}

/* Makes objects of each kind for Fortran. */
void c_make_(MPI_Fint *comm, MPI_Fint *type, MPI_Fint *op, MPI_Fint *group, MPI_Fint *info, MPI_Fint *handler)
{
    MPI_Comm c;
    MPI_Datatype t;
    MPI_Group g;
    MPI_Info i;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Type_vector(2, 1, 2, MPI_INT, &t);
    MPI_Type_commit(&t);
    MPI_Comm_group(c, &g);
    MPI_Info_create(&i);
    MPI_Info_set(i, "key", "set in C");
    *comm = MPI_Comm_c2f(c);
    *type = MPI_Type_c2f(t);
    *op = MPI_Op_c2f(MPI_SUM);
    *group = MPI_Group_c2f(g);
    *info = MPI_Info_c2f(i);
    *handler = MPI_Errhandler_c2f(MPI_ERRORS_RETURN);
}

/* Applies an operator and a datatype of Fortran. */
void c_reduce_(MPI_Fint *comm, MPI_Fint *type, MPI_Fint *op, MPI_Fint *values)
{
    MPI_Allreduce(MPI_IN_PLACE, values, 2, MPI_Type_f2c(*type), MPI_Op_f2c(*op), MPI_Comm_f2c(*comm));
}

/* The error handler of C that a communicator of Fortran has: 1 for MPI_ERRORS_RETURN. */
void c_handler_(MPI_Fint *comm, MPI_Fint *is_return)
{
    MPI_Errhandler handler;
    MPI_Comm_get_errhandler(MPI_Comm_f2c(*comm), &handler);
    *is_return = handler == MPI_ERRORS_RETURN;
}

static int is_empty, is_unweighted;

/* Takes the place of the library's function, to see which constants it gets. */
int MPI_Dist_graph_create_adjacent(MPI_Comm comm, int in, const int sources[], const int source_weights[], int out,
                                   const int destinations[], const int weights[], MPI_Info info, int reorder,
                                   MPI_Comm *graph)
{
    is_empty = source_weights == MPI_WEIGHTS_EMPTY;
    is_unweighted = source_weights == MPI_UNWEIGHTED && weights == MPI_UNWEIGHTED;
    return PMPI_Dist_graph_create_adjacent(comm, in, sources, source_weights, out, destinations, weights, info, reorder,
                                           graph);
}

/* Constants of the last call: 1 for MPI_WEIGHTS_EMPTY, 2 for MPI_UNWEIGHTED. */
void c_weights_(MPI_Fint *constants)
{
    *constants = is_empty + 2 * is_unweighted;
}
