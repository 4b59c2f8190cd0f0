/* Symbols by which debuggers find the ranks of a job: the MPIR process acquisition interface, version 1.1, 2018.
 *
 * The file is in C because debuggers expect the names and types of C in the debug information. It is compiled with
 * -g -O0, so that MPIR_Breakpoint stays a function. `mpir.rs` fills the table. */

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

/* Debuggers look only for the presence of the next three symbols. */
int MPIR_i_am_starter = 0; /* mpiexec is not a rank. */
int MPIR_partial_attach_ok = 0; /* mpiexec also releases ranks that the debugger has not attached to. */
int MPIR_force_to_main = 0; /* The debugger shows main instead of MPI_Init when a rank stops there. */

/* Debuggers set a breakpoint here. */
void MPIR_Breakpoint(void) {}
