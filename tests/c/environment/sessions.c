/* Sessions without the world model, during it, before it and after it; process sets, groups, communicators and
 * intercommunicators from groups, and rejected arguments. The argument selects how the world model is used.
 * test: ranks=1,2,3,4 args=alone;within;before;around;rounds */
#include "../check.h"
#include <malloc.h>

static int raised;
static void handle(MPI_Session *session, int *code, ...)
{
    (void)session;
    raised = class_of(*code);
}

static MPI_Session begin(const char *level)
{
    MPI_Session session = MPI_SESSION_NULL;
    MPI_Info info;
    MPI_Info_create(&info);
    if (level)
        MPI_Info_set(info, "thread_level", level);
    OK(MPI_Session_init(level ? info : MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    CHECK(session != MPI_SESSION_NULL);
    MPI_Info_free(&info);
    return session;
}

static MPI_Comm make(MPI_Session session, const char *set, const char *tag)
{
    MPI_Group group;
    MPI_Comm comm = MPI_COMM_NULL;
    OK(MPI_Group_from_session_pset(session, set, &group));
    OK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    MPI_Group_free(&group);
    return comm;
}

/* All ranks of a communicator take part in a sum and a ring of messages. */
static void use(MPI_Comm comm)
{
    int own, size, sum = -1, got = -1;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &size);
    OK(MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm));
    SAME(sum, size * (size - 1) / 2);
    OK(MPI_Sendrecv(&own, 1, MPI_INT, (own + 1) % size, 1, &got, 1, MPI_INT, (own + size - 1) % size, 1, comm,
                    MPI_STATUS_IGNORE));
    SAME(got, (own + size - 1) % size);
}

static void check_sets(MPI_Session session)
{
    int count = 0, found = 0;
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    CHECK(count >= 3);
    for (int i = 0; i < count; i++) {
        int length = 0, flag = 0, size, expected;
        char name[MPI_MAX_PSET_NAME_LEN], value[20];
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, NULL));
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name));
        SAME(strlen(name) + 1, length);
        found += (strcmp(name, "mpi://WORLD") == 0) + 2 * (strcmp(name, "mpi://SELF") == 0);
        found += 4 * (strcmp(name, "mpi://SHARED") == 0);
        MPI_Info info;
        MPI_Group group;
        OK(MPI_Session_get_pset_info(session, name, &info));
        int room = sizeof value;
        MPI_Info_get_string(info, "mpi_size", &room, value, &flag);
        CHECK(flag);
        MPI_Info_free(&info);
        OK(MPI_Group_from_session_pset(session, name, &group));
        MPI_Group_size(group, &size);
        SAME(size, atoi(value));
        MPI_Group_rank(group, &expected);
        CHECK(expected >= 0 && expected < size);
        MPI_Group_free(&group);
    }
    SAME(found, 7);
    char name[8];
    int room = 4;
    OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &room, name));
    CHECK(!strcmp(name, "mpi") && room == (int)sizeof "mpi://WORLD");
    CLASS(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, count, &room, name), MPI_ERR_ARG);
    MPI_Group group;
    CLASS(MPI_Group_from_session_pset(session, "mpi://NONE", &group), MPI_ERR_ARG);
    CHECK(group == MPI_GROUP_NULL);
}

static void check_handlers(MPI_Session session)
{
    MPI_Errhandler handler, got;
    MPI_Session_create_errhandler(handle, &handler);
    OK(MPI_Session_set_errhandler(session, handler));
    OK(MPI_Session_get_errhandler(session, &got));
    CHECK(got == handler);
    MPI_Errhandler_free(&got);
    MPI_Session_call_errhandler(session, MPI_ERR_TOPOLOGY);
    SAME(raised, MPI_ERR_TOPOLOGY);
    int length = 0;
    MPI_Session_get_nth_pset(session, MPI_INFO_NULL, -1, &length, NULL);
    SAME(raised, MPI_ERR_ARG);
    MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
}

/* Halves of the world, each from its group; then the halves as both sides of an intercommunicator. */
static void check_groups(MPI_Session session)
{
    MPI_Group world, low, high;
    MPI_Comm half, inter;
    int all, me;
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world));
    MPI_Group_size(world, &all);
    MPI_Group_rank(world, &me);
    int split = (all + 1) / 2, ranges[2][3] = {{0, split - 1, 1}, {split, all - 1, 1}};
    MPI_Group_range_incl(world, 1, &ranges[0], &low);
    MPI_Group_range_incl(world, all > 1, &ranges[1], &high);
    MPI_Group own = me < split ? low : high, other = me < split ? high : low;
    OK(MPI_Comm_create_from_group(own, "half", MPI_INFO_NULL, MPI_ERRORS_RETURN, &half));
    use(half);
    if (all > 1) {
        int size, there = -1;
        OK(MPI_Intercomm_create_from_groups(own, 0, other, 0, "sides", MPI_INFO_NULL, MPI_ERRORS_RETURN, &inter));
        MPI_Comm_remote_size(inter, &size);
        SAME(size, me < split ? all - split : split);
        int local;
        MPI_Comm_rank(inter, &local);
        if (local < size && local < (me < split ? split : all - split)) {
            OK(MPI_Sendrecv(&me, 1, MPI_INT, local, 0, &there, 1, MPI_INT, local, 0, inter, MPI_STATUS_IGNORE));
            SAME(there, me < split ? split + local : local);
        }
        MPI_Comm merged;
        OK(MPI_Intercomm_merge(inter, me >= split, &merged));
        use(merged);
        MPI_Comm_free(&merged);
        MPI_Comm_free(&inter);
    }
    /* Rank order of the group is that of the communicator. */
    int turned[64];
    for (int i = 0; i < all; i++)
        turned[i] = all - 1 - i;
    MPI_Group back;
    MPI_Comm comm;
    MPI_Group_incl(world, all, turned, &back);
    OK(MPI_Comm_create_from_group(back, "back", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    int position;
    MPI_Comm_rank(comm, &position);
    SAME(position, all - 1 - me);
    use(comm);
    MPI_Comm_free(&comm);
    OK(MPI_Comm_create_from_group(MPI_GROUP_EMPTY, "none", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    CHECK(comm == MPI_COMM_NULL);
    if (me >= split)
        CLASS(MPI_Comm_create_from_group(low, "not in it", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_ERR_GROUP);
    MPI_Comm_free(&half);
    MPI_Group_free(&back);
    MPI_Group_free(&low);
    MPI_Group_free(&high);
    MPI_Group_free(&world);
}

static int comm_raised, comm_calls;
static void handle_comm(MPI_Comm *comm, int *code, ...)
{
    CHECK(*comm == MPI_COMM_NULL);
    comm_raised = class_of(*code);
    comm_calls++;
}

/* Every error of the call goes to the handler given for the new communicator. */
static void check_making(MPI_Session session)
{
    MPI_Group world;
    MPI_Comm comm;
    MPI_Errhandler handler;
    char tag[MPI_MAX_STRINGTAG_LEN + 1];
    memset(tag, 'x', MPI_MAX_STRINGTAG_LEN);
    tag[MPI_MAX_STRINGTAG_LEN] = 0;
    OK(MPI_Comm_create_errhandler(handle_comm, &handler));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world));
    comm_calls = 0;
    CLASS(MPI_Comm_create_from_group(world, "no variable", MPI_INFO_NULL, handler, NULL), MPI_ERR_ARG);
    SAME(comm_raised, MPI_ERR_ARG);
    SAME(comm_calls, 1);
    CLASS(MPI_Comm_create_from_group(MPI_GROUP_NULL, "no group", MPI_INFO_NULL, handler, &comm), MPI_ERR_GROUP);
    SAME(comm_raised, MPI_ERR_GROUP);
    CLASS(MPI_Comm_create_from_group(world, tag, MPI_INFO_NULL, handler, &comm), MPI_ERR_ARG);
    CHECK(comm == MPI_COMM_NULL);
    SAME(comm_calls, 3);
    CLASS(MPI_Intercomm_create_from_groups(world, -1, MPI_GROUP_NULL, 0, "no leader", MPI_INFO_NULL, handler, &comm),
          MPI_ERR_RANK);
    CLASS(MPI_Intercomm_create_from_groups(MPI_GROUP_NULL, 0, world, 0, "", MPI_INFO_NULL, handler, &comm),
          MPI_ERR_GROUP);
    SAME(comm_calls, 5);
    MPI_Errhandler_free(&handler);
    MPI_Group_free(&world);
}

static void check_all(void)
{
    MPI_Session session = begin("MPI_THREAD_MULTIPLE"), second = begin(NULL);
    CHECK(session != second);
    check_sets(session);
    check_handlers(session);
    check_groups(session);
    check_making(session);
    MPI_Info info;
    OK(MPI_Session_get_info(session, &info));
    char value[40] = "";
    int room = sizeof value, flag = 0;
    MPI_Info_get_string(info, "thread_level", &room, value, &flag);
    CHECK(flag && !strncmp(value, "MPI_THREAD_", 11));
    MPI_Info_free(&info);
    MPI_Comm one = make(session, "mpi://WORLD", "one"), two = make(second, "mpi://WORLD", "two");
    MPI_Comm own = make(second, "mpi://SELF", "own"), near = make(session, "mpi://SHARED", "near");
    use(one);
    use(two);
    use(own);
    use(near);
    int result;
    MPI_Comm_compare(one, two, &result);
    SAME(result, MPI_CONGRUENT);
    /* A session buffer serves the communicators of the session. */
    char memory[1000];
    void *address;
    int size, me;
    MPI_Comm_rank(one, &me);
    MPI_Comm_size(one, &size);
    OK(MPI_Session_attach_buffer(session, memory, sizeof memory));
    int got = -1;
    OK(MPI_Bsend(&me, 1, MPI_INT, (me + 1) % size, 2, one));
    CLASS(MPI_Bsend(&me, 1, MPI_INT, (me + 1) % size, 2, two), MPI_ERR_BUFFER);
    OK(MPI_Recv(&got, 1, MPI_INT, (me + size - 1) % size, 2, one, MPI_STATUS_IGNORE));
    SAME(got, (me + size - 1) % size);
    OK(MPI_Session_flush_buffer(session));
    MPI_Request request;
    OK(MPI_Session_iflush_buffer(session, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Session_detach_buffer(session, &address, &size));
    CHECK(address == memory && size == sizeof memory);
    MPI_Comm_free(&one);
    MPI_Comm_free(&two);
    MPI_Comm_free(&own);
    MPI_Comm_disconnect(&near);
    OK(MPI_Session_finalize(&second));
    CHECK(second == MPI_SESSION_NULL);
    OK(MPI_Session_finalize(&session));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "alone";
    int flag = -1;
    MPI_Initialized(&flag);
    CHECK(!flag);
    if (!strcmp(how, "alone")) {
        check_all();
        check_all();
        MPI_Initialized(&flag);
        CHECK(!flag);
        return failures ? 1 : 0;
    }
    if (!strcmp(how, "rounds")) {
        /* A round leaves no memory in use: 16 bytes in each round would add up to 155,200. A slab of unexpected
         * messages is kept. */
        struct mallinfo2 before = {0}, after;
        for (int round = 0; round < 10000; round++) {
            MPI_Session session;
            if (round == 300)
                before = mallinfo2();
            if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session))
                fail(__LINE__, "round %d", round);
            if (round % 10 == 0) {
                MPI_Comm comm = make(session, "mpi://WORLD", "round");
                MPI_Barrier(comm);
                MPI_Comm_free(&comm);
            }
            MPI_Session_finalize(&session);
        }
        after = mallinfo2();
        if (after.uordblks > before.uordblks + 100000)
            fail(__LINE__, "%zu bytes are left of 9,700 rounds", (size_t)(after.uordblks - before.uordblks));
        return failures ? 1 : 0;
    }
    if (!strcmp(how, "before")) {
        check_all();
        start(&argc, &argv);
        check_all();
        return finish();
    }
    if (!strcmp(how, "around")) {
        MPI_Session session = begin(NULL);
        MPI_Comm comm = make(session, "mpi://WORLD", "around");
        start(&argc, &argv);
        use(MPI_COMM_WORLD);
        use(comm);
        MPI_Comm_free(&meeting);
        MPI_Finalize();
        MPI_Finalized(&flag);
        CHECK(flag);
        use(comm);
        check_all();
        MPI_Comm_free(&comm);
        MPI_Session_finalize(&session);
        check_all();
        return failures ? 1 : 0;
    }
    start(&argc, &argv);
    check_all();
    check_all();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CLASS(MPI_Session_finalize(&(MPI_Session){MPI_SESSION_NULL}), MPI_ERR_SESSION);
    return finish();
}
