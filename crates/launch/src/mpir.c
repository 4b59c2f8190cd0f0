/* Symbols by which debuggers find the ranks of a job: the MPIR process acquisition interface, version 1.1, 2018.
 *
 * In C, so that debuggers find the names and types of C in the debug information. Compiled with -g -O0, so that
 * MPIR_Breakpoint stays a function. `mpir.rs` fills the table. */

typedef struct {
    char *host_name;
    char *executable_name;
    int pid;
} MPIR_PROCDESC;

/* The index of a process is its rank in MPI_COMM_WORLD. */
MPIR_PROCDESC *MPIR_proctable = 0;
int MPIR_proctable_size = 0;

/* 0: no table yet, 1: the table is complete, 2: the job aborts, for the reason in MPIR_debug_abort_string. */
volatile int MPIR_debug_state = 0;
char *MPIR_debug_abort_string = 0;

/* Set by the debugger. */
volatile int MPIR_being_debugged = 0;

/* Only the presence of these symbols counts: mpiexec is no rank, it releases ranks that no debugger has attached to,
 * and a rank stopped in MPI_Init is worth showing from main. */
int MPIR_i_am_starter = 0;
int MPIR_partial_attach_ok = 0;
int MPIR_force_to_main = 0;

/* Debuggers set a breakpoint here. */
void MPIR_Breakpoint(void) {}
