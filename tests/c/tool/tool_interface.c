/* MPI_T: control variables before MPI_Init, counters and levels, events with callbacks, categories, and rejected
 * arguments.
 * test: ranks=1,2 timeout=60 */
#include "../check.h"

#define T_OK(call) SAME(call, MPI_SUCCESS)

static int told, told_bytes, freed;

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety,
                     void *data)
{
    MPI_Count when = 0;
    int source = -1;
    char copy[16];
    unsigned long long bytes = 0;
    (void)registration;
    CHECK(data == &told);
    SAME(safety, MPI_T_CB_REQUIRE_MPI_RESTRICTED);
    T_OK(MPI_T_event_get_timestamp(instance, &when));
    T_OK(MPI_T_event_get_source(instance, &source));
    T_OK(MPI_T_event_read(instance, 2, &bytes));
    T_OK(MPI_T_event_copy(instance, copy));
    SAME(MPI_T_event_read(instance, 3, &bytes), MPI_T_ERR_INVALID_INDEX);
    CHECK(when > 0);
    SAME(source, 0);
    CHECK(memcmp(copy + 8, &bytes, 8) == 0);
    told++;
    told_bytes += (int)bytes;
}

static void on_free(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    (void)registration, (void)safety;
    CHECK(data == &freed);
    freed++;
}

static void look_at_names(void)
{
    int number, index, length, verbosity, bind, scope, class, readonly, continuous, atomic, items;
    char name[100], description[200];
    MPI_Datatype datatype;
    MPI_T_enum words;
    T_OK(MPI_T_cvar_get_num(&number));
    CHECK(number > 10);
    for (int i = 0; i < number; i++) {
        int room = sizeof description;
        length = sizeof name;
        T_OK(MPI_T_cvar_get_info(i, name, &length, &verbosity, &datatype, &words, description, &room, &bind, &scope));
        SAME(length, strlen(name) + 1);
        SAME(bind, MPI_T_BIND_NO_OBJECT);
        T_OK(MPI_T_cvar_get_index(name, &index));
        SAME(index, i);
        if (words != MPI_T_ENUM_NULL) {
            T_OK(MPI_T_enum_get_info(words, &items, NULL, NULL));
            CHECK(items > 1);
            SAME(MPI_T_enum_get_item(words, items, NULL, NULL, NULL), MPI_T_ERR_INVALID_ITEM);
        }
    }
    length = 5;
    T_OK(MPI_T_cvar_get_info(0, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    SAME(strlen(name), 4);
    CHECK(length > 5);
    SAME(MPI_T_cvar_get_info(number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), MPI_T_ERR_INVALID_INDEX);
    SAME(MPI_T_cvar_get_index("no such", &index), MPI_T_ERR_INVALID_NAME);
    T_OK(MPI_T_pvar_get_num(&number));
    for (int i = 0; i < number; i++) {
        int room = sizeof description;
        length = sizeof name;
        T_OK(MPI_T_pvar_get_info(i, name, &length, &verbosity, &class, &datatype, &words, description, &room, &bind,
                                 &readonly, &continuous, &atomic));
        T_OK(MPI_T_pvar_get_index(name, class, &index));
        SAME(index, i);
        CHECK(datatype == MPI_UINT64_T);
    }
    int categories, cvars, pvars, inner, events, all[200];
    T_OK(MPI_T_category_get_num(&categories));
    for (int i = 0; i < categories; i++) {
        length = sizeof name;
        T_OK(MPI_T_category_get_info(i, name, &length, NULL, NULL, &cvars, &pvars, &inner));
        T_OK(MPI_T_category_get_num_events(i, &events));
        T_OK(MPI_T_category_get_index(name, &index));
        SAME(index, i);
        CHECK(cvars + pvars + events > 0);
        all[0] = -1;
        T_OK(MPI_T_category_get_pvars(i, 200, all));
        SAME(all[0], pvars > 0 ? 0 : -1);
    }
    int changes = -1;
    T_OK(MPI_T_category_changed(&changes));
    SAME(changes, 0);
}

int main(int argc, char **argv)
{
    int provided, index, count, value, number;
    char text[1024];
    MPI_T_cvar_handle wait, eager;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle stored, length, most, eager_bytes;
    MPI_T_event_registration event;
    SAME(MPI_T_cvar_get_num(&number), MPI_T_ERR_NOT_INITIALIZED);
    T_OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    look_at_names();

    /* MPI_Init uses values set before it. */
    T_OK(MPI_T_cvar_get_index("FASTPATH_CHECK", &index));
    T_OK(MPI_T_cvar_handle_alloc(index, NULL, &wait, &count));
    SAME(count, 1);
    T_OK(MPI_T_cvar_read(wait, &value));
    value = 7;
    SAME(MPI_T_cvar_write(wait, &value), MPI_T_ERR_INVALID);
    value = 0;
    T_OK(MPI_T_cvar_write(wait, &value));
    T_OK(MPI_T_cvar_get_index("FASTPATH_UNEXPECTED_MAX", &index));
    T_OK(MPI_T_cvar_handle_alloc(index, NULL, &eager, &count));
    CHECK(count > 10 && count <= (int)sizeof text);
    T_OK(MPI_T_cvar_write(eager, "64M"));
    SAME(MPI_T_cvar_write(eager, "much"), MPI_T_ERR_INVALID);

    T_OK(MPI_T_event_get_index("post_eager", &index));
    T_OK(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &event));
    T_OK(MPI_T_event_register_callback(event, MPI_T_CB_REQUIRE_MPI_RESTRICTED, MPI_INFO_NULL, &told, on_event));

    start(&argc, &argv);
    T_OK(MPI_T_cvar_read(eager, text));
    CHECK(strcmp(text, "64M") == 0);
    SAME(MPI_T_cvar_write(eager, "32M"), MPI_T_ERR_CVAR_SET_NOT_NOW);
    T_OK(MPI_T_cvar_handle_free(&eager));
    CHECK(eager == MPI_T_CVAR_HANDLE_NULL);

    /* A short message takes a slot. It is first, because the queues below must not hold other messages. */
    int size;
    char into_short, short_data = 0;
    unsigned long long filled = 0;
    MPI_T_pvar_handle slots;
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    T_OK(MPI_T_pvar_session_create(&session));
    T_OK(MPI_T_pvar_get_index("ring_slots_sent", MPI_T_PVAR_CLASS_COUNTER, &index));
    T_OK(MPI_T_pvar_handle_alloc(session, index, NULL, &slots, &count));
    T_OK(MPI_T_pvar_start(session, slots));
    OK(MPI_Sendrecv(&short_data, 1, MPI_BYTE, (rank + 1) % size, 9, &into_short, 1, MPI_BYTE, (rank + size - 1) % size, 9,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    T_OK(MPI_T_pvar_read(session, slots, &filled));
    if (size > 1 && getenv("FASTPATH_TRANSPORTS") == NULL && getenv("MPI_TEST_HOSTS") == NULL)
        CHECK(filled >= 1);
    T_OK(MPI_T_pvar_session_free(&session));

    /* A message to self that arrives before its receive. */
    unsigned long long unexpected = 99, queued = 99;
    T_OK(MPI_T_pvar_session_create(&session));
    T_OK(MPI_T_pvar_get_index("unexpected_messages", MPI_T_PVAR_CLASS_COUNTER, &index));
    T_OK(MPI_T_pvar_handle_alloc(session, index, NULL, &stored, &count));
    SAME(MPI_T_pvar_get_index("unexpected_messages", MPI_T_PVAR_CLASS_LEVEL, &index), MPI_T_ERR_INVALID_NAME);
    T_OK(MPI_T_pvar_get_index("unexpected_queue_length", MPI_T_PVAR_CLASS_LEVEL, &index));
    T_OK(MPI_T_pvar_handle_alloc(session, index, NULL, &length, &count));
    T_OK(MPI_T_pvar_get_index("unexpected_queue_length_most", MPI_T_PVAR_CLASS_HIGHWATERMARK, &index));
    T_OK(MPI_T_pvar_handle_alloc(session, index, NULL, &most, &count));
    T_OK(MPI_T_pvar_get_index("eager_bytes_by_memory", MPI_T_PVAR_CLASS_COUNTER, &index));
    T_OK(MPI_T_pvar_handle_alloc(session, index, NULL, &eager_bytes, &count));
    T_OK(MPI_T_pvar_read(session, stored, &unexpected));
    SAME(unexpected, 0);
    T_OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    static char data[2000], into[2000];
    int flag = 0;
    told = told_bytes = 0;
    OK(MPI_Send(data, sizeof data, MPI_BYTE, rank, 1, MPI_COMM_WORLD));
    while (!flag)
        OK(MPI_Iprobe(rank, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    SAME(told, 1);
    SAME(told_bytes, sizeof data);
    T_OK(MPI_T_pvar_read(session, length, &queued));
    T_OK(MPI_T_pvar_stop(session, stored));
    OK(MPI_Recv(into, sizeof into, MPI_BYTE, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(queued, 1);
    T_OK(MPI_T_pvar_read(session, length, &queued));
    SAME(queued, 0);
    T_OK(MPI_T_pvar_read(session, most, &queued));
    CHECK(queued >= 1);
    T_OK(MPI_T_pvar_read(session, eager_bytes, &queued));
    SAME(queued, sizeof data);
    T_OK(MPI_T_pvar_readreset(session, stored, &unexpected));
    SAME(unexpected, 1);
    T_OK(MPI_T_pvar_read(session, stored, &unexpected));
    SAME(unexpected, 0);
    SAME(MPI_T_pvar_reset(session, length), MPI_T_ERR_PVAR_NO_WRITE);
    SAME(MPI_T_pvar_start(session, length), MPI_T_ERR_PVAR_NO_STARTSTOP);
    T_OK(MPI_T_pvar_handle_free(session, &length));

    /* Receives that wait for their messages. */
    MPI_Request receives[3];
    T_OK(MPI_T_pvar_get_index("posted_queue_length", MPI_T_PVAR_CLASS_LEVEL, &index));
    T_OK(MPI_T_pvar_handle_alloc(session, index, NULL, &length, &count));
    T_OK(MPI_T_pvar_get_index("posted_queue_length_most", MPI_T_PVAR_CLASS_HIGHWATERMARK, &index));
    T_OK(MPI_T_pvar_handle_alloc(session, index, NULL, &most, &count));
    for (int i = 0; i < 3; i++)
        OK(MPI_Irecv(&into[i], 1, MPI_BYTE, i == 0 ? MPI_ANY_SOURCE : rank, i, MPI_COMM_WORLD, &receives[i]));
    T_OK(MPI_T_pvar_read(session, length, &queued));
    SAME(queued, 3);
    T_OK(MPI_T_pvar_read(session, most, &queued));
    CHECK(queued >= 3);
    for (int i = 0; i < 3; i++)
        OK(MPI_Send(data, 1, MPI_BYTE, rank, i, MPI_COMM_WORLD));
    OK(MPI_Waitall(3, receives, MPI_STATUSES_IGNORE));
    T_OK(MPI_T_pvar_read(session, length, &queued));
    SAME(queued, 0);
    T_OK(MPI_T_pvar_session_free(&session));
    SAME(MPI_T_pvar_read(session, stored, &unexpected), MPI_T_ERR_INVALID_SESSION);

    T_OK(MPI_T_event_handle_free(event, &freed, on_free));
    SAME(freed, 1);
    told = 0;
    OK(MPI_Send(data, sizeof data, MPI_BYTE, rank, 1, MPI_COMM_WORLD));
    OK(MPI_Recv(into, sizeof into, MPI_BYTE, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(told, 0);
    T_OK(MPI_T_finalize());
    SAME(MPI_T_finalize(), MPI_T_ERR_NOT_INITIALIZED);
    return finish();
}
