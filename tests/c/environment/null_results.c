/* A call that fails sets the handles it would have returned to null. Any number of ranks. */
#include "../comm_check.h"

/* A handle that is neither null nor an object, as an uninitialised variable may hold. */
#define STALE 0x41414141

#define FAILS(type, null, call)                                    \
    do {                                                           \
        type made = (type)STALE;                                   \
        int class_ = class_of(call);                               \
        if (class_ == MPI_SUCCESS)                                 \
            fail(__LINE__, "%s does not fail", #call);             \
        if (made != null)                                          \
            fail(__LINE__, "%s does not set it to null", #call);   \
    } while (0)

#define COMM(call) FAILS(MPI_Comm, MPI_COMM_NULL, call)
#define TYPE(call) FAILS(MPI_Datatype, MPI_DATATYPE_NULL, call)
#define GROUP(call) FAILS(MPI_Group, MPI_GROUP_NULL, call)
#define INFO(call) FAILS(MPI_Info, MPI_INFO_NULL, call)
#define HANDLER(call) FAILS(MPI_Errhandler, MPI_ERRHANDLER_NULL, call)
#define REQUEST(call) FAILS(MPI_Request, MPI_REQUEST_NULL, call)
#define OPERATION(call) FAILS(MPI_Op, MPI_OP_NULL, call)
#define WINDOW(call) FAILS(MPI_Win, MPI_WIN_NULL, call)

static int one[1] = {1}, minus[1] = {-1}, data[4];
static MPI_Count large[1] = {1};
static MPI_Aint at[1];
static MPI_Datatype no_type[1];

static void check_types(void)
{
    const MPI_Datatype no = MPI_DATATYPE_NULL;
    no_type[0] = no;
    TYPE(MPI_Type_contiguous(-1, MPI_INT, &made));
    TYPE(MPI_Type_contiguous(1, no, &made));
    TYPE(MPI_Type_contiguous_c(-1, MPI_INT, &made));
    TYPE(MPI_Type_vector(1, -1, 1, MPI_INT, &made));
    TYPE(MPI_Type_vector_c(1, -1, 1, MPI_INT, &made));
    TYPE(MPI_Type_create_hvector(1, 1, 1, no, &made));
    TYPE(MPI_Type_create_hvector_c(1, 1, 1, no, &made));
    TYPE(MPI_Type_indexed(1, minus, one, MPI_INT, &made));
    TYPE(MPI_Type_indexed_c(1, large, large, no, &made));
    TYPE(MPI_Type_create_hindexed(1, minus, at, MPI_INT, &made));
    TYPE(MPI_Type_create_indexed_block(1, -1, one, MPI_INT, &made));
    TYPE(MPI_Type_create_hindexed_block(1, 1, NULL, MPI_INT, &made));
    TYPE(MPI_Type_create_struct(1, one, at, no_type, &made));
    TYPE(MPI_Type_create_struct_c(-1, large, large, no_type, &made));
    TYPE(MPI_Type_create_subarray(1, one, one, one, MPI_ORDER_C, MPI_INT, &made));
    TYPE(MPI_Type_create_darray(1, 1, 1, one, one, one, one, MPI_ORDER_C, MPI_INT, &made));
    TYPE(MPI_Type_create_resized(no, 0, 4, &made));
    TYPE(MPI_Type_create_f90_real(1000, 1000, &made));
    TYPE(MPI_Type_create_f90_complex(1000, 1000, &made));
    TYPE(MPI_Type_create_f90_integer(1000, &made));
    TYPE(MPI_Type_dup(no, &made));
    TYPE(MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 5, &made));
    TYPE(MPI_Type_get_value_index(no, MPI_INT, &made));
}

static void check_comms_and_groups(void)
{
    const MPI_Comm no = MPI_COMM_NULL;
    const MPI_Group none = MPI_GROUP_NULL;
    COMM(MPI_Comm_dup(no, &made));
    COMM(MPI_Comm_dup_with_info(no, MPI_INFO_NULL, &made));
    COMM(MPI_Comm_create(no, none, &made));
    COMM(MPI_Comm_create_group(MPI_COMM_SELF, none, 0, &made));
    COMM(MPI_Comm_split(MPI_COMM_SELF, -77, 0, &made));
    COMM(MPI_Comm_split_type(no, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made));
    COMM(MPI_Intercomm_create(no, 0, MPI_COMM_SELF, 0, 0, &made));
    COMM(MPI_Intercomm_merge(MPI_COMM_SELF, 0, &made));
    COMM(MPI_Cart_create(MPI_COMM_SELF, 1, minus, one, 0, &made));
    COMM(MPI_Cart_sub(MPI_COMM_SELF, one, &made));
    COMM(MPI_Graph_create(no, 1, one, one, 0, &made));
    COMM(MPI_Dist_graph_create(no, 0, NULL, NULL, NULL, NULL, MPI_INFO_NULL, 0, &made));
    COMM(MPI_Dist_graph_create_adjacent(no, 0, NULL, NULL, 0, NULL, NULL, MPI_INFO_NULL, 0, &made));
    COMM(MPI_Comm_create_from_group(none, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made));
    COMM(MPI_Intercomm_create_from_groups(none, 0, none, 0, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made));
    COMM(MPI_Comm_accept("", MPI_INFO_NULL, 0, no, &made));
    COMM(MPI_Comm_connect("", MPI_INFO_NULL, 0, no, &made));
    COMM(MPI_Comm_join(-1, &made));
    COMM(MPI_Comm_spawn("", MPI_ARGV_NULL, -1, MPI_INFO_NULL, 0, no, &made, MPI_ERRCODES_IGNORE));
    REQUEST(MPI_Comm_idup(no, &(MPI_Comm){MPI_COMM_SELF}, &made));
    COMM(MPI_Comm_idup(no, &made, &(MPI_Request){MPI_REQUEST_NULL}));
    COMM(MPI_Comm_idup_with_info(no, MPI_INFO_NULL, &made, &(MPI_Request){MPI_REQUEST_NULL}));

    GROUP(MPI_Comm_group(no, &made));
    GROUP(MPI_Comm_remote_group(MPI_COMM_SELF, &made));
    GROUP(MPI_Group_union(none, none, &made));
    GROUP(MPI_Group_intersection(none, none, &made));
    GROUP(MPI_Group_difference(none, none, &made));
    GROUP(MPI_Group_incl(none, 0, NULL, &made));
    GROUP(MPI_Group_excl(none, 0, NULL, &made));
    GROUP(MPI_Group_range_incl(none, 0, NULL, &made));
    GROUP(MPI_Group_range_excl(none, 0, NULL, &made));
    GROUP(MPI_Group_from_session_pset(MPI_SESSION_NULL, "mpi://WORLD", &made));
    GROUP(MPI_Win_get_group(MPI_WIN_NULL, &made));
    GROUP(MPI_File_get_group(MPI_FILE_NULL, &made));
}

static void check_requests(void)
{
    const int bad = ranks + 1;
    MPI_Message message = MPI_MESSAGE_NULL;
    REQUEST(MPI_Isend(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Isend_c(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Issend(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Irsend(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Ibsend(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Irecv(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Irecv(data, -1, MPI_INT, 0, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Irecv(data, 1, MPI_INT, 0, 0, MPI_COMM_NULL, &made));
    REQUEST(MPI_Imrecv(data, 1, MPI_INT, &message, &made));
    CHECK(message == MPI_MESSAGE_NULL);
    REQUEST(MPI_Isendrecv(data, 1, MPI_INT, bad, 0, data + 1, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Isendrecv_replace(data, 1, MPI_INT, bad, 0, 0, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Send_init(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Ssend_init(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Rsend_init(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Bsend_init(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Recv_init(data, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, &made));
    REQUEST(MPI_Psend_init(data, 1, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &made));
    REQUEST(MPI_Precv_init(data, 1, 1, MPI_INT, bad, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &made));
    REQUEST(MPI_Comm_iflush_buffer(MPI_COMM_NULL, &made));
    REQUEST(MPI_Ibarrier(MPI_COMM_NULL, &made));
    REQUEST(MPI_Ibcast(data, 1, MPI_INT, 0, MPI_COMM_NULL, &made));
    REQUEST(MPI_Iallreduce(data, data + 1, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL, &made));
    REQUEST(MPI_Barrier_init(MPI_COMM_NULL, MPI_INFO_NULL, &made));
    REQUEST(MPI_Bcast_init(data, 1, MPI_INT, 0, MPI_COMM_NULL, MPI_INFO_NULL, &made));
    REQUEST(MPI_Ineighbor_allgather(data, 1, MPI_INT, data + 1, 1, MPI_INT, MPI_COMM_NULL, &made));
    REQUEST(MPI_Rput(data, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_WIN_NULL, &made));
    REQUEST(MPI_File_iread(MPI_FILE_NULL, data, 1, MPI_INT, &made));
    FAILS(MPI_Message, MPI_MESSAGE_NULL, MPI_Mprobe(bad, 0, MPI_COMM_WORLD, &made, MPI_STATUS_IGNORE));
    FAILS(MPI_Message, MPI_MESSAGE_NULL, MPI_Improbe(bad, 0, MPI_COMM_WORLD, data, &made, MPI_STATUS_IGNORE));
}

static void check_others(void)
{
    HANDLER(MPI_Comm_create_errhandler(NULL, &made));
    HANDLER(MPI_File_create_errhandler(NULL, &made));
    HANDLER(MPI_Win_create_errhandler(NULL, &made));
    HANDLER(MPI_Comm_get_errhandler(MPI_COMM_NULL, &made));
    HANDLER(MPI_Win_get_errhandler(MPI_WIN_NULL, &made));
    INFO(MPI_Info_dup(MPI_INFO_NULL, &made));
    INFO(MPI_Comm_get_info(MPI_COMM_NULL, &made));
    INFO(MPI_Win_get_info(MPI_WIN_NULL, &made));
    INFO(MPI_File_get_info(MPI_FILE_NULL, &made));
    OPERATION(MPI_Op_create(NULL, 1, &made));
    OPERATION(MPI_Op_create_c(NULL, 1, &made));
    WINDOW(MPI_Win_create(data, -1, 1, MPI_INFO_NULL, MPI_COMM_SELF, &made));
    WINDOW(MPI_Win_allocate(-1, 1, MPI_INFO_NULL, MPI_COMM_SELF, &(void *){NULL}, &made));
    WINDOW(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_NULL, &made));
    FAILS(MPI_File, MPI_FILE_NULL, MPI_File_open(MPI_COMM_NULL, "", 0, MPI_INFO_NULL, &made));
}

static int refuse_comm(MPI_Comm old, int key, void *extra, void *from, void *to, int *flag)
{
    (void)old, (void)key, (void)extra, (void)from, (void)to, (void)flag;
    return MPI_ERR_OTHER;
}

static int refuse_type(MPI_Datatype old, int key, void *extra, void *from, void *to, int *flag)
{
    (void)old, (void)key, (void)extra, (void)from, (void)to, (void)flag;
    return MPI_ERR_OTHER;
}

/* The object was created before the copy of its attributes failed. */
static void check_refused_copies(void)
{
    int key;
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Comm_create_keyval(refuse_comm, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Comm_set_attr(comm, key, NULL));
    COMM(MPI_Comm_dup(comm, &made));
    OK(MPI_Comm_free_keyval(&key));
    OK(MPI_Comm_free(&comm));

    MPI_Datatype type;
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_create_keyval(refuse_type, MPI_TYPE_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Type_set_attr(type, key, NULL));
    TYPE(MPI_Type_dup(type, &made));
    OK(MPI_Type_free_keyval(&key));
    OK(MPI_Type_free(&type));
}

static int null_before_handler;
static MPI_Request seen;

static void look(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    null_before_handler = seen == MPI_REQUEST_NULL;
}

/* An error handler that does not return (longjmp, exception) leaves no stale handle. */
static void check_handler_sees_null(void)
{
    MPI_Errhandler handler;
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_create_errhandler(look, &handler));
    OK(MPI_Comm_set_errhandler(comm, handler));
    seen = (MPI_Request)STALE;
    CLASS(MPI_Isend(data, 1, MPI_INT, 5, 0, comm, &seen), MPI_ERR_RANK);
    CHECK(null_before_handler);
    null_before_handler = 0;
    seen = (MPI_Request)STALE;
    CLASS(MPI_Send_init(data, 1, MPI_INT, 5, 0, comm, &seen), MPI_ERR_RANK);
    CHECK(null_before_handler);
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Comm_free(&comm));
}

/* An input handle is unchanged: an object that was not freed is still valid. */
static void check_read_handles(void)
{
    MPI_Datatype type = MPI_INT;
    CLASS(MPI_Type_free(&type), MPI_ERR_TYPE);
    CHECK(type == MPI_INT);
    MPI_Comm world = MPI_COMM_WORLD;
    CLASS(MPI_Comm_free(&world), MPI_ERR_COMM);
    CHECK(world == MPI_COMM_WORLD);
    MPI_Op sum = MPI_SUM;
    CLASS(MPI_Op_free(&sum), MPI_ERR_OP);
    CHECK(sum == MPI_SUM);
    /* A null pointer for the result is a separate error. */
    CLASS(MPI_Type_contiguous(1, MPI_INT, NULL), MPI_ERR_ARG);
    CLASS(MPI_Isend(data, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, NULL), MPI_ERR_ARG);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* Until MPI_COMM_SELF has its own handler, errors without a communicator go to the handler of MPI_COMM_WORLD. */
    check_types();
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    check_comms_and_groups();
    check_requests();
    check_others();
    check_refused_copies();
    check_handler_sees_null();
    check_read_handles();
    return finish();
}
