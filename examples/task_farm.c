/* A task farm that outlives its workers: it counts prime numbers, block by block.
 *
 * Rank 0 gives out tasks, one at a time, and adds up the answers. If a worker dies, its task is given out again, and a
 * spawned process takes its place, up to REPLACEMENTS times. Without any worker rank 0 does the remaining tasks itself.
 * All communication is between rank 0 and one worker, so no communicator has to be repaired: the death of a worker shows
 * as an error of the receive that waits for its answer. At the end a sieve checks the number.
 *
 * usage: mpiexec --with-ft ulfm -n 4 task_farm [TASKS [REPLACEMENTS]]
 */
#include <mpi-ext.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 2000, END = -1, NONE = -2 };

typedef struct {
    MPI_Comm comm; /* MPI_COMM_WORLD, or the intercommunicator to a spawned worker; MPI_COMM_NULL after its death */
    int rank;      /* in that communicator */
    int task;      /* NONE if idle */
    int answer;
} Worker;

typedef struct {
    int *open; /* tasks to give out */
    int opens, done, given_again, replaced;
    long primes;
} Farm;

/* Number of primes in a block. */
static int do_task(int task)
{
    int primes = 0;
    for (long n = (long)task * BLOCK; n < (task + 1L) * BLOCK; n++) {
        int is_prime = n >= 2 && (n == 2 || n % 2 == 1);
        for (long divisor = 3; is_prime && divisor * divisor <= n; divisor += 2)
            is_prime = n % divisor != 0;
        primes += is_prime;
    }
    return primes;
}

static void work(MPI_Comm comm)
{
    int task, answer;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    while (MPI_Recv(&task, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE) == MPI_SUCCESS && task != END) {
        answer = do_task(task);
        if (MPI_Send(&answer, 1, MPI_INT, 0, 0, comm) != MPI_SUCCESS)
            break; /* rank 0 has died */
    }
}

static void add_answer(Farm *farm, int answer)
{
    farm->primes += answer;
    farm->done++;
}

/* Starts the next task on a worker. A failure of the send is left to the receive, which fails too. */
static MPI_Request give_task(Farm *farm, Worker *worker)
{
    MPI_Request request;
    worker->task = farm->open[--farm->opens];
    MPI_Send(&worker->task, 1, MPI_INT, worker->rank, 0, worker->comm);
    MPI_Irecv(&worker->answer, 1, MPI_INT, worker->rank, 0, worker->comm, &request);
    return request;
}

/* Takes the task of a dead worker back, and spawns a worker in its place if that is allowed and possible. */
static void replace(Farm *farm, Worker *worker, int replacements, char **argv)
{
    farm->open[farm->opens++] = worker->task;
    farm->given_again++;
    worker->task = NONE;
    if (worker->comm != MPI_COMM_WORLD)
        MPI_Comm_free(&worker->comm);
    worker->comm = MPI_COMM_NULL;
    worker->rank = 0;
    if (farm->replaced == replacements)
        return;
    farm->replaced++;
    if (MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &worker->comm,
                       MPI_ERRCODES_IGNORE) != MPI_SUCCESS)
        worker->comm = MPI_COMM_NULL;
    else
        MPI_Comm_set_errhandler(worker->comm, MPI_ERRORS_RETURN);
}

static void manage(Farm *farm, int tasks, int replacements, int workers, char **argv)
{
    Worker *all = calloc(workers + 1, sizeof *all);
    MPI_Request *requests = calloc(workers + 1, sizeof *requests);
    for (int i = 0; i < workers; i++) {
        all[i] = (Worker){MPI_COMM_WORLD, i + 1, NONE, 0};
        requests[i] = MPI_REQUEST_NULL;
    }
    while (farm->done < tasks) {
        for (int i = 0; i < workers && farm->opens; i++)
            if (all[i].task == NONE && all[i].comm != MPI_COMM_NULL)
                requests[i] = give_task(farm, &all[i]);
        int which, rc = MPI_Waitany(workers, requests, &which, MPI_STATUS_IGNORE);
        if (which == MPI_UNDEFINED) { /* no worker is left */
            add_answer(farm, do_task(farm->open[--farm->opens]));
        } else if (rc == MPI_SUCCESS) {
            all[which].task = NONE;
            add_answer(farm, all[which].answer);
        } else {
            replace(farm, &all[which], replacements, argv);
        }
    }
    for (int i = 0; i < workers; i++) {
        int end = END;
        if (all[i].comm != MPI_COMM_NULL)
            MPI_Send(&end, 1, MPI_INT, all[i].rank, 0, all[i].comm);
        if (all[i].comm != MPI_COMM_NULL && all[i].comm != MPI_COMM_WORLD)
            MPI_Comm_free(&all[i].comm);
    }
    free(requests);
    free(all);
}

/* Number of primes below a limit, by the sieve of Eratosthenes. */
static long count_alone(long limit)
{
    long primes = 0;
    char *composite = calloc(limit + 1, 1);
    for (long n = 2; n < limit; n++) {
        primes += !composite[n];
        for (long multiple = n * n; !composite[n] && multiple < limit; multiple += n)
            composite[multiple] = 1;
    }
    free(composite);
    return primes;
}

int main(int argc, char **argv)
{
    int rank, ranks, wrong = 0;
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (parent != MPI_COMM_NULL) {
        work(parent);
        MPI_Comm_free(&parent);
    } else if (rank > 0) {
        work(MPI_COMM_WORLD);
    } else {
        int tasks = argc > 1 ? atoi(argv[1]) : 1000, replacements = argc > 2 ? atoi(argv[2]) : 8;
        Farm farm = {.open = calloc(tasks + 1, sizeof(int)), .opens = tasks};
        for (int i = 0; i < tasks; i++)
            farm.open[i] = tasks - 1 - i;
        manage(&farm, tasks, replacements, ranks - 1, argv);
        printf("%d tasks, %d of them given out again, %d replacements\n", tasks, farm.given_again, farm.replaced);
        wrong = farm.primes != count_alone((long)tasks * BLOCK);
        printf("%s: there are %ld primes below %ld\n", wrong ? "WRONG" : "checked", farm.primes, (long)tasks * BLOCK);
        free(farm.open);
    }
    MPI_Finalize();
    return wrong;
}
