/* Generalized requests: queries, cancellation, errors of callbacks, requests freed early, and threads that complete
 * requests others wait for.
 * test: ranks=1,2 */
#include "../check.h"
#include <pthread.h>

static int queries, frees, cancels, was_complete, answer;

static int query(void *state, MPI_Status *status)
{
    queries++;
    MPI_Status_set_elements(status, MPI_INT, 3);
    MPI_Status_set_cancelled(status, cancels > 0);
    status->MPI_SOURCE = *(int *)state;
    status->MPI_TAG = 77;
    return answer;
}
static int drop(void *state)
{
    (void)state;
    frees++;
    return MPI_SUCCESS;
}
static int drop_badly(void *state)
{
    (void)state;
    frees++;
    return MPI_ERR_TOPOLOGY;
}
static int cancel(void *state, int complete)
{
    (void)state;
    cancels++;
    was_complete = complete;
    return MPI_SUCCESS;
}

static MPI_Request cancelled;
static int complete_it(void *state, int complete)
{
    cancel(state, complete);
    return complete ? MPI_SUCCESS : MPI_Grequest_complete(cancelled);
}

static void forget(void)
{
    queries = frees = cancels = 0, was_complete = -1, answer = MPI_SUCCESS;
}

static void check_one(void)
{
    MPI_Request request, copy;
    MPI_Status status;
    int state = 5, flag = 1, count;
    forget();
    OK(MPI_Grequest_start(query, drop, cancel, &state, &request));
    OK(MPI_Test(&request, &flag, &status));
    CHECK(!flag && request != MPI_REQUEST_NULL);
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(!flag);
    SAME(queries, 0);
    OK(MPI_Grequest_complete(request));
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(flag && request != MPI_REQUEST_NULL);
    SAME(frees, 0);
    CLASS(MPI_Grequest_complete(request), MPI_ERR_REQUEST);
    OK(MPI_Wait(&request, &status));
    CHECK(request == MPI_REQUEST_NULL);
    SAME(status.MPI_SOURCE, 5);
    SAME(status.MPI_TAG, 77);
    MPI_Get_count(&status, MPI_INT, &count);
    SAME(count, 3);
    MPI_Test_cancelled(&status, &flag);
    CHECK(!flag && queries >= 1);
    SAME(frees, 1);

    /* Cancelled before and after completion. */
    forget();
    MPI_Grequest_start(query, drop, cancel, &state, &request);
    OK(MPI_Cancel(&request));
    SAME(was_complete, 0);
    MPI_Grequest_complete(request);
    OK(MPI_Cancel(&request));
    SAME(was_complete, 1);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
    SAME(cancels, 2);

    /* Cancelled by a callback that completes the request, as if it stopped its operation. */
    forget();
    MPI_Grequest_start(query, drop, complete_it, &state, &request);
    cancelled = request;
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, &status));
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
    SAME(cancels, 1);
    SAME(frees, 1);

    /* Freed before it is complete: the free callback runs after MPI_Request_free and MPI_Grequest_complete. */
    forget();
    MPI_Grequest_start(query, drop, cancel, &state, &request);
    copy = request;
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    SAME(frees, 0);
    OK(MPI_Grequest_complete(copy));
    SAME(frees, 1);
    forget();
    MPI_Grequest_start(query, drop, cancel, &state, &request);
    MPI_Grequest_complete(request);
    OK(MPI_Request_free(&request));
    SAME(frees, 1);
}

static void check_errors(void)
{
    MPI_Request request;
    int state = 0;
    forget();
    answer = MPI_ERR_TYPE;
    MPI_Grequest_start(query, drop, cancel, &state, &request);
    MPI_Grequest_complete(request);
    CLASS(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_TYPE);
    CHECK(request == MPI_REQUEST_NULL);
    SAME(frees, 1);
    forget();
    MPI_Grequest_start(query, drop_badly, cancel, &state, &request);
    MPI_Grequest_complete(request);
    CLASS(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_TOPOLOGY);
    CHECK(request == MPI_REQUEST_NULL);
    CLASS(MPI_Grequest_start(NULL, drop, cancel, &state, &request), MPI_ERR_ARG);
    CLASS(MPI_Grequest_complete(MPI_REQUEST_NULL), MPI_ERR_REQUEST);
    MPI_Irecv(&state, 1, MPI_INT, rank, 0, meeting, &request);
    CLASS(MPI_Grequest_complete(request), MPI_ERR_REQUEST);
    CLASS(MPI_Pready(0, request), MPI_ERR_REQUEST);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

enum { MANY = 50 };
static MPI_Request many[MANY + 1], named[MANY];

static void *complete(void *unused)
{
    (void)unused;
    for (int i = MANY - 1; i >= 0; i--)
        OK(MPI_Grequest_complete(named[i]));
    return NULL;
}

/* Together with other requests; completed by another thread while this one waits. */
static void check_many(int threads)
{
    MPI_Status statuses[MANY + 1];
    pthread_t thread;
    int state = 9, got = -1;
    forget();
    for (int i = 0; i < MANY; i++) {
        MPI_Grequest_start(query, drop, cancel, &state, &many[i]);
        named[i] = many[i];
    }
    MPI_Irecv(&got, 1, MPI_INT, (rank + ranks - 1) % ranks, 3, meeting, &many[MANY]);
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % ranks, 3, meeting);
    if (!threads || pthread_create(&thread, NULL, complete, NULL))
        complete(NULL), threads = 0;
    OK(MPI_Waitall(MANY + 1, many, statuses));
    if (threads)
        pthread_join(thread, NULL);
    for (int i = 0; i < MANY; i++) {
        CHECK(many[i] == MPI_REQUEST_NULL);
        SAME(statuses[i].MPI_SOURCE, 9);
    }
    STATUS(statuses[MANY], (rank + ranks - 1) % ranks, 3, sizeof(int));
    SAME(frees, MANY);
    /* One request of several. */
    int index = -1, flag = 1;
    MPI_Status status;
    for (int i = 0; i < 3; i++)
        MPI_Grequest_start(query, drop, cancel, &state, &many[i]);
    MPI_Testany(3, many, &index, &flag, &status);
    CHECK(!flag);
    MPI_Grequest_complete(many[1]);
    MPI_Waitany(3, many, &index, &status);
    SAME(index, 1);
    MPI_Grequest_complete(many[0]);
    MPI_Grequest_complete(many[2]);
    int count, which[3];
    MPI_Waitsome(3, many, &count, which, statuses);
    SAME(count, 2);
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &meeting);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check_one();
    check_errors();
    check_many(0);
    for (int round = 0; round < 200; round++)
        check_many(level == MPI_THREAD_MULTIPLE);
    return finish();
}
