/* Forked children of a rank call MPI, and each call fails in the child: immediate or not, with a request or a window of
 * the parent, while another thread of the parent is inside MPI. The parent and the other ranks continue. Any other
 * argument names the one call a child makes with fatal errors: tests/jobs/forked.py.
 * test: ranks=1,2,3 args=plain;threads */
#include "../check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG = 1 << 20 };

static MPI_Comm comm, talk;
static MPI_Win win;
static MPI_File file;
static MPI_Request receive, persistent;
static int before, next, word, *shared;
static unsigned char *out, *in;
static volatile int stop;

/* Makes every kind of call and returns the number of failures. */
static int call_all(void)
{
    int number, flag = 0;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Request request;
    MPI_Status status;
    MPI_Comm made;
    MPI_Session session;
    failures = 0;
    OK(MPI_Initialized(&flag));
    CHECK(flag);
    flag = 0;
    OK(MPI_Finalized(&flag));
    CHECK(flag); /* exit handlers check this before they call MPI_Finalize */
    CHECK(MPI_Wtime() > 0);
    CLASS(MPI_Comm_rank(comm, &number), MPI_ERR_OTHER);
    CLASS(MPI_Comm_size(MPI_COMM_WORLD, &number), MPI_ERR_OTHER);
    CLASS(MPI_Comm_get_name(comm, name, &number), MPI_ERR_OTHER);
    CLASS(MPI_Type_size(MPI_INT, &number), MPI_ERR_OTHER);
    CLASS(MPI_Send(&word, 1, MPI_INT, next, 1, comm), MPI_ERR_OTHER);
    CLASS(MPI_Send(out, LONG, MPI_BYTE, next, 1, comm), MPI_ERR_OTHER);
    CLASS(MPI_Ssend(&word, 1, MPI_INT, next, 1, comm), MPI_ERR_OTHER);
    CLASS(MPI_Recv(&word, 1, MPI_INT, before, 1, comm, &status), MPI_ERR_OTHER);
    CLASS(MPI_Sendrecv(&word, 1, MPI_INT, next, 1, &number, 1, MPI_INT, before, 1, comm, &status), MPI_ERR_OTHER);
    CLASS(MPI_Isend(&word, 1, MPI_INT, next, 1, comm, &request), MPI_ERR_OTHER);
    CLASS(MPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &request), MPI_ERR_OTHER);
    CLASS(MPI_Iprobe(before, 1, comm, &flag, &status), MPI_ERR_OTHER);
    CLASS(MPI_Test(&receive, &flag, &status), MPI_ERR_OTHER);
    CLASS(MPI_Wait(&receive, &status), MPI_ERR_OTHER);
    CLASS(MPI_Waitall(1, &receive, MPI_STATUSES_IGNORE), MPI_ERR_OTHER);
    CLASS(MPI_Start(&persistent), MPI_ERR_OTHER);
    CLASS(MPI_Barrier(comm), MPI_ERR_OTHER);
    CLASS(MPI_Bcast(&word, 1, MPI_INT, 0, comm), MPI_ERR_OTHER);
    CLASS(MPI_Allreduce(&word, &number, 1, MPI_INT, MPI_SUM, comm), MPI_ERR_OTHER);
    CLASS(MPI_Ibarrier(comm, &request), MPI_ERR_OTHER);
    CLASS(MPI_Comm_dup(comm, &made), MPI_ERR_OTHER);
    CLASS(MPI_Put(&word, 1, MPI_INT, next, 0, 1, MPI_INT, win), MPI_ERR_OTHER);
    CLASS(MPI_Get(&word, 1, MPI_INT, next, 0, 1, MPI_INT, win), MPI_ERR_OTHER);
    CLASS(MPI_Fetch_and_op(&word, &number, MPI_INT, next, 0, MPI_SUM, win), MPI_ERR_OTHER);
    CLASS(MPI_Win_flush(next, win), MPI_ERR_OTHER);
    CLASS(MPI_Win_unlock_all(win), MPI_ERR_OTHER);
    CLASS(MPI_File_write_at(file, 0, out, 10, MPI_BYTE, &status), MPI_ERR_OTHER);
    CLASS(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session), MPI_ERR_OTHER);
    CLASS(MPI_Init(NULL, NULL), MPI_ERR_OTHER);
    CLASS(MPI_Finalize(), MPI_ERR_OTHER);
    return failures;
}

/* A grandchild, and a child that crashes: the job reports neither. */
static int call_below(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(call_all());
    waitpid(child, &status, 0);
    failures = 0;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    child = fork();
    if (child == 0) {
        kill(getpid(), SIGSEGV);
        _exit(0);
    }
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    return failures;
}

static void in_child(int (*calls)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(calls() ? 1 : 0);
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Body of a thread that is inside MPI nearly all the time. */
static void *chatter(void *nothing)
{
    int sent = 0, got = 0;
    while (!stop) {
        OK(MPI_Sendrecv(&sent, 1, MPI_INT, 0, 3, &got, 1, MPI_INT, 0, 3, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        sent++;
    }
    return nothing;
}

/* A child of rank 0 makes one fatal call, which must not affect the other ranks. */
static int end_child(const char *how)
{
    int number, status = -1;
    if (rank == 0) {
        pid_t child = fork();
        if (child == 0) {
            if (strcmp(how, "send") == 0)
                MPI_Send(&word, 1, MPI_INT, next, 1, MPI_COMM_WORLD);
            if (strcmp(how, "rank") == 0)
                MPI_Comm_rank(MPI_COMM_WORLD, &number);
            if (strcmp(how, "finalize") == 0)
                MPI_Finalize();
            if (strcmp(how, "abort") == 0)
                MPI_Abort(MPI_COMM_WORLD, 5);
            if (strcmp(how, "session") == 0) {
                MPI_Session session;
                MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
            }
            exit(strcmp(how, "exit") == 0 ? 16 : 99); /* with the exit handlers of program and library */
        }
        waitpid(child, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 16);
    }
    MPI_Sendrecv(&rank, 1, MPI_INT, next, 1, &word, 1, MPI_INT, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    SAME(word, before);
    MPI_Barrier(MPI_COMM_WORLD);
    return finish();
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "plain";
    int threads = strcmp(how, "threads") == 0, level;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &meeting);
    next = (rank + 1) % ranks;
    before = (rank + ranks - 1) % ranks;
    if (!threads && strcmp(how, "plain") != 0)
        return end_child(how);

    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &talk);
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &shared, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    char path[300];
    snprintf(path, sizeof path, "%s/forked-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", rank);
    OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &file));
    OK(MPI_Send_init(&word, 1, MPI_INT, next, 2, comm, &persistent));
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    *shared = 7;
    MPI_Win_unlock(rank, win);
    MPI_Barrier(comm);
    out = allocate(LONG);
    in = allocate(LONG);
    fill(out, LONG, (unsigned)rank);
    pthread_t thread;
    if (threads)
        pthread_create(&thread, NULL, chatter, NULL);

    for (int round = 0; round < 5; round++) {
        memset(in, 0, LONG);
        OK(MPI_Irecv(in, LONG, MPI_BYTE, before, 1, comm, &receive));
        OK(MPI_Win_lock_all(0, win));
        int got = -1;
        OK(MPI_Get(&got, 1, MPI_INT, next, 0, 1, MPI_INT, win));
        OK(MPI_Win_flush(next, win));
        SAME(got, 7);
        in_child(round % 2 ? call_below : call_all);
        OK(MPI_Get(&got, 1, MPI_INT, next, 0, 1, MPI_INT, win));
        OK(MPI_Win_unlock_all(win));
        OK(MPI_Send(out, LONG, MPI_BYTE, next, 1, comm));
        OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
        HOLDS(in, LONG, (unsigned)before);
        OK(MPI_Sendrecv(&rank, 1, MPI_INT, next, 1, &got, 1, MPI_INT, before, 1, talk, MPI_STATUS_IGNORE));
        SAME(got, before);
        OK(MPI_Barrier(comm));
    }
    stop = 1;
    if (threads)
        pthread_join(thread, NULL);
    OK(MPI_Request_free(&persistent));
    OK(MPI_File_close(&file));
    OK(MPI_Win_free(&win));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_free(&talk));
    return finish();
}
