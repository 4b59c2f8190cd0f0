/* Instructions from the poll that finds a short message to the return of the receiving call.
 *
 * Rank 0 executes rank 1 step by step (ptrace). After FIRST + n steps inside the call, while rank 1 polls, rank 0 sends
 * the message and counts the remaining steps of the call. Each n from 0 to TRIALS - 1 is another place of the polling
 * loop; the smallest count belongs to a message that arrives just before the poll. For MPI_Recv_there the message is
 * sent before the call, and all steps of the call count. Further ranks sleep.
 *
 * usage: mpiexec -n RANKS arrival single|multiple CALL LIMIT [CALL LIMIT]...
 * Prints one line for each call. The exit code is 1 if a call exceeds its limit. */
#define _GNU_SOURCE
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST = 400, TRIALS = 40, LOST = 100000, WARM = 2000, TAG = 5, REPLY = 6 };

typedef void receive_function(char *buffer);

static void call_recv(char *buffer)
{
    MPI_Recv(buffer, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void call_wait(char *buffer)
{
    MPI_Request request;
    MPI_Irecv(buffer, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_waitall(char *buffer)
{
    MPI_Request request;
    MPI_Irecv(buffer, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
}

static void call_sendrecv(char *buffer)
{
    char word[8] = {0};
    MPI_Sendrecv(word, 8, MPI_BYTE, 0, REPLY, buffer, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static const struct receiver {
    const char *name;
    receive_function *call;
    void (*entry)(void);
    int replies;  /* messages that the call itself sends to rank 0 */
    int is_there; /* whether the message is sent before the call */
} receivers[] = {
    {"MPI_Recv", call_recv, (void (*)(void))MPI_Recv, 0, 0},
    {"MPI_Recv_there", call_recv, (void (*)(void))MPI_Recv, 0, 1},
    {"MPI_Wait", call_wait, (void (*)(void))MPI_Wait, 0, 0},
    {"MPI_Waitall", call_waitall, (void (*)(void))MPI_Waitall, 0, 0},
    {"MPI_Sendrecv", call_sendrecv, (void (*)(void))MPI_Sendrecv, 1, 0},
};

static void die(const char *what)
{
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static unsigned long long step(pid_t process)
{
    struct user_regs_struct registers;
    int status;
    if (ptrace(PTRACE_SINGLESTEP, process, 0, 0) || waitpid(process, &status, 0) != process || !WIFSTOPPED(status) ||
        ptrace(PTRACE_GETREGS, process, 0, &registers))
        die("a step of rank 1");
    return registers.rip;
}

/* Returns the counted steps of a call. Unless the message is there, rank 0 sends it after `before` steps of the call. */
static int count_steps(pid_t process, const struct receiver *receiver, unsigned long long entry, int before)
{
    char word[8] = {0};
    struct user_regs_struct registers;
    if (receiver->is_there)
        MPI_Send(word, 8, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    while (step(process) != entry)
        ;
    if (ptrace(PTRACE_GETREGS, process, 0, &registers))
        die("registers of rank 1");
    unsigned long long back = ptrace(PTRACE_PEEKDATA, process, registers.rsp, 0);
    if (!receiver->is_there) {
        for (int steps = 0; steps < before; steps++)
            if (step(process) == back) {
                fprintf(stderr, "%s returned before its message was sent\n", receiver->name);
                MPI_Abort(MPI_COMM_WORLD, 3);
            }
        MPI_Send(word, 8, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    }
    for (int steps = 1; steps < LOST; steps++)
        if (step(process) == back)
            return steps;
    fprintf(stderr, "%s did not return\n", receiver->name);
    MPI_Abort(MPI_COMM_WORLD, 3);
    return 0;
}

static void warm_up(int rank, char *buffer)
{
    for (int round = 0; round < WARM; round++) {
        if (rank == 0) {
            MPI_Send(buffer, 8, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            MPI_Recv(buffer, 8, MPI_BYTE, 1, REPLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, 8, MPI_BYTE, 0, REPLY, MPI_COMM_WORLD);
        }
    }
}

/* Returns the smallest count. */
static int trace(const struct receiver *receiver, char *buffer)
{
    struct { pid_t process; unsigned long long entry; } traced;
    MPI_Recv(&traced, sizeof traced, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int status, smallest = INT_MAX;
    if (ptrace(PTRACE_SEIZE, traced.process, 0, 0))
        die("ptrace: attaching to rank 1");
    MPI_Send(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    for (int trial = 0; trial < TRIALS; trial++) {
        waitpid(traced.process, &status, 0);
        int count = count_steps(traced.process, receiver, traced.entry, FIRST + trial);
        smallest = count < smallest ? count : smallest;
        ptrace(PTRACE_CONT, traced.process, 0, 0);
        for (int reply = 0; reply < receiver->replies; reply++)
            MPI_Recv(buffer, 8, MPI_BYTE, 1, REPLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    waitpid(traced.process, &status, 0);
    ptrace(PTRACE_DETACH, traced.process, 0, 0);
    return smallest;
}

static void be_traced(const struct receiver *receiver, char *buffer)
{
    struct { pid_t process; unsigned long long entry; } traced = {getpid(), (unsigned long long)receiver->entry};
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    MPI_Send(&traced, sizeof traced, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int trial = 0; trial < TRIALS; trial++) {
        __asm__ volatile("int3"); /* rank 0 takes over */
        receiver->call(buffer);
    }
    __asm__ volatile("int3");
}

int main(int argc, char **argv)
{
    char buffer[8] = {0};
    int level, rank, exceeded = 0;
    int multiple = argc > 1 && strcmp(argv[1], "multiple") == 0;
    MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int word = 2; word + 1 < argc; word += 2) {
        const struct receiver *receiver = receivers;
        while (strcmp(receiver->name, argv[word]) != 0)
            if (++receiver == receivers + sizeof receivers / sizeof *receivers) {
                fprintf(stderr, "unknown call %s\n", argv[word]);
                MPI_Abort(MPI_COMM_WORLD, 2);
            }
        if (rank > 1)
            break;
        warm_up(rank, buffer);
        if (rank == 1) {
            be_traced(receiver, buffer);
            continue;
        }
        int count = trace(receiver, buffer), limit = atoi(argv[word + 1]);
        printf("%s%s: %d instructions, limit %d\n", receiver->name, multiple ? " at MPI_THREAD_MULTIPLE" : "", count,
               limit);
        exceeded |= count > limit;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return exceeded;
}
