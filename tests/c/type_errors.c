/* Wrong arguments to the calls that make datatypes give the right error class. Any number of ranks. */
#include "check.h"

#define EXPECT(class, call) CLASS(call, class)

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

    /* A predefined type cannot be freed, and is still there after the attempt. */
    t = MPI_INT;
    EXPECT(MPI_ERR_TYPE, MPI_Type_free(&t));
    EXPECT(MPI_SUCCESS, MPI_Type_size(MPI_INT, &size));

    /* The handle of a freed type is not that of the next one. */
    EXPECT(MPI_SUCCESS, MPI_Type_contiguous(3, MPI_INT, &t));
    freed = t;
    EXPECT(MPI_SUCCESS, MPI_Type_free(&t));
    EXPECT(MPI_SUCCESS, MPI_Type_contiguous(3, MPI_INT, &t));
    EXPECT(MPI_ERR_TYPE, MPI_Type_size(freed, &size));
    EXPECT(MPI_ERR_TYPE, MPI_Type_commit(&freed));
    EXPECT(MPI_ERR_ARG, MPI_Type_get_contents(t, 0, 0, 0, one, at, types));
    EXPECT(MPI_SUCCESS, MPI_Type_get_envelope(t, &n, &n, &n, &combiner));

    /* What was not committed cannot be sent. */
    int buffer[3] = {0};
    EXPECT(MPI_ERR_TYPE, MPI_Send(buffer, 1, t, MPI_PROC_NULL, 0, MPI_COMM_SELF));
    EXPECT(MPI_SUCCESS, MPI_Type_commit(&t));
    EXPECT(MPI_SUCCESS, MPI_Send(buffer, 1, t, MPI_PROC_NULL, 0, MPI_COMM_SELF));
    EXPECT(MPI_SUCCESS, MPI_Type_free(&t));

    return finish();
}
