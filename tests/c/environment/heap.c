/* Objects of every kind that are created and freed repeatedly leave no memory in use.
 * test: ranks=1,2,3 env=GLIBC_TUNABLES=glibc.malloc.tcache_count=0 */
#include "../check.h"
#include <limits.h>
#include <malloc.h>

enum { ROUNDS = 20000 };

static int peer;

static void dup_comm(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_free(&comm);
}

static void dup_nested(void)
{
    MPI_Comm outer, inner;
    MPI_Comm_dup(MPI_COMM_SELF, &outer);
    MPI_Comm_dup(outer, &inner);
    MPI_Comm_free(&outer);
    MPI_Comm_free(&inner);
}

static void split_comm(void)
{
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_SELF, 0, 0, &comm);
    MPI_Comm_set_name(comm, "a name that needs memory of its own");
    MPI_Comm_free(&comm);
}

static void create_comm(void)
{
    MPI_Group group;
    MPI_Comm comm;
    MPI_Comm_group(MPI_COMM_SELF, &group);
    MPI_Comm_create_group(MPI_COMM_SELF, group, 0, &comm);
    MPI_Group_free(&group);
    MPI_Comm_disconnect(&comm);
}

static void cart_comm(void)
{
    int one = 1, zero = 0;
    MPI_Comm comm;
    MPI_Cart_create(MPI_COMM_SELF, 1, &one, &zero, 0, &comm);
    MPI_Comm_free(&comm);
}

static void groups(void)
{
    int zero = 0;
    MPI_Group world, one, both;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &zero, &one);
    MPI_Group_union(world, one, &both);
    MPI_Group_free(&both);
    MPI_Group_free(&one);
    MPI_Group_free(&world);
}

static void types(void)
{
    MPI_Datatype vector, outer, copy;
    int lengths[2] = {1, 2};
    MPI_Aint displs[2] = {0, 800};
    MPI_Type_vector(3, 2, 5, MPI_INT, &vector);
    MPI_Datatype parts[2] = {vector, MPI_DOUBLE};
    MPI_Type_create_struct(2, lengths, displs, parts, &outer);
    MPI_Type_commit(&outer);
    MPI_Type_dup(outer, &copy);
    MPI_Type_free(&vector);
    MPI_Type_free(&outer);
    MPI_Type_free(&copy);
}

static void infos(void)
{
    MPI_Info info, copy;
    MPI_Info_create(&info);
    MPI_Info_set(info, "key", "value");
    MPI_Info_dup(info, &copy);
    MPI_Info_free(&info);
    MPI_Info_free(&copy);
}

static void handle_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
}

static void errhandlers(void)
{
    MPI_Errhandler handler, same;
    MPI_Comm_create_errhandler(handle_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &same);
    MPI_Errhandler_free(&same);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
}

static void keyvals(void)
{
    int keyval;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &peer);
    MPI_Comm_delete_attr(MPI_COMM_SELF, keyval);
    MPI_Comm_free_keyval(&keyval);
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)count, (void)type;
}

static void ops(void)
{
    MPI_Op op;
    MPI_Op_create(add, 1, &op);
    MPI_Op_free(&op);
}

static void codes(void)
{
    int class, code;
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "text");
    MPI_Remove_error_string(code);
    MPI_Remove_error_code(code);
    MPI_Remove_error_class(class);
}

static void requests(void)
{
    int in = 0, out = 1;
    MPI_Request both[2];
    MPI_Irecv(&in, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &both[0]);
    MPI_Issend(&out, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &both[1]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    MPI_Recv_init(&in, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &both[0]);
    MPI_Start(&both[0]);
    MPI_Send(&out, 1, MPI_INT, rank, 1, MPI_COMM_WORLD);
    MPI_Wait(&both[0], MPI_STATUS_IGNORE);
    MPI_Request_free(&both[0]);
    MPI_Irecv(&in, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &both[0]);
    MPI_Cancel(&both[0]);
    MPI_Wait(&both[0], MPI_STATUS_IGNORE);
}

static void freed_requests(void)
{
    int in = 0, out = 1;
    MPI_Request request;
    MPI_Irecv(&in, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Send(&out, 1, MPI_INT, rank, 1, MPI_COMM_WORLD);
    while (!__atomic_load_n(&in, __ATOMIC_RELAXED)) {
        int flag;
        MPI_Iprobe(rank, 2, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
}

static void typed_requests(void)
{
    static int in[400], out[400];
    MPI_Datatype vector;
    MPI_Request request;
    MPI_Type_vector(100, 1, 3, MPI_INT, &vector);
    MPI_Type_commit(&vector);
    MPI_Irecv(in, 1, vector, rank, 1, MPI_COMM_WORLD, &request);
    MPI_Type_free(&vector);
    MPI_Send(out, 100, MPI_INT, rank, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void messages(void)
{
    int in = 0, out = 1;
    MPI_Message message;
    MPI_Send(&out, 1, MPI_INT, rank, 1, MPI_COMM_WORLD);
    MPI_Mprobe(rank, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
}

static void long_messages(void)
{
    static char in[100000], out[100000];
    MPI_Request request;
    MPI_Isend(out, sizeof out, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request);
    MPI_Recv(in, sizeof in, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void buffered(void)
{
    static char out[100000 + MPI_BSEND_OVERHEAD], in[100000];
    void *buffer;
    int size;
    MPI_Buffer_attach(out, sizeof out);
    MPI_Bsend(in, 50000, MPI_BYTE, rank, 1, MPI_COMM_WORLD);
    MPI_Recv(in, sizeof in, MPI_BYTE, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&buffer, &size);
}

static void collectives(void)
{
    int in = rank, sum;
    MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void errors(void)
{
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Send(&peer, -1, MPI_INT, 0, 0, MPI_COMM_SELF);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static const struct {
    const char *name;
    void (*run)(void);
    int rounds;
} KINDS[] = {
    {"communicators by dup", dup_comm, ROUNDS},
    {"communicators by dup of a dup", dup_nested, ROUNDS},
    {"communicators by split", split_comm, ROUNDS},
    {"communicators by create_group", create_comm, ROUNDS},
    {"communicators with a topology", cart_comm, ROUNDS},
    {"groups", groups, ROUNDS},
    {"datatypes", types, ROUNDS},
    {"info objects", infos, ROUNDS},
    {"error handlers", errhandlers, ROUNDS},
    {"keyvals", keyvals, ROUNDS},
    {"operations", ops, ROUNDS},
    {"error codes", codes, ROUNDS},
    {"requests", requests, ROUNDS},
    {"requests that were freed", freed_requests, ROUNDS},
    {"requests with a datatype", typed_requests, ROUNDS},
    {"messages", messages, ROUNDS},
    {"long messages", long_messages, 2000},
    {"buffered messages", buffered, 2000},
    {"collective calls", collectives, 5000},
    {"errors", errors, ROUNDS},
};

int main(int argc, char **argv)
{
    /* Freed memory must count as free at once, so thread caches (see the variable above) and fast bins are off. */
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MXFAST, 0);
    start(&argc, &argv);
    peer = (rank + 1) % ranks;
    for (size_t kind = 0; kind < sizeof KINDS / sizeof *KINDS; kind++) {
        int rounds = KINDS[kind].rounds;
        for (int i = 0; i < rounds / 2; i++)
            KINDS[kind].run();
        meet();
        /* A queue may grow once or twice when a rank is ahead of another; a leak grows every time. */
        long long least = LLONG_MAX;
        for (int attempt = 0; attempt < 3; attempt++) {
            size_t before = in_use();
            for (int i = 0; i < rounds; i++)
                KINDS[kind].run();
            long long more = (long long)in_use() - (long long)before;
            least = more < least ? more : least;
            meet();
        }
        if (least > 2048)
            fail(__LINE__, "%d rounds of %s leave %lld bytes in use", rounds, KINDS[kind].name, least);
        meet();
    }
    return finish();
}
