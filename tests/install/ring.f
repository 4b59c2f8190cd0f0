C     Passes each rank's number once around the ring and adds them up, by mpif.h.
      PROGRAM RING
      IMPLICIT NONE
      INCLUDE 'mpif.h'
      INTEGER RANK, RANKS, TOTAL, STEP, IERROR, STATUS(MPI_STATUS_SIZE)
      INTEGER PASSING
      REAL UNUSED
      UNUSED = 0
      CALL MPI_INIT(IERROR)
      CALL MPI_COMM_RANK(MPI_COMM_WORLD, RANK, IERROR)
      CALL MPI_COMM_SIZE(MPI_COMM_WORLD, RANKS, IERROR)
C     Another type of buffer, as most programs have in one file.
      CALL MPI_SENDRECV_REPLACE(UNUSED, 0, MPI_INTEGER,
     &     MOD(RANK + 1, RANKS), 1, MOD(RANK + RANKS - 1, RANKS), 1,
     &     MPI_COMM_WORLD, STATUS, IERROR)
      TOTAL = RANK
      PASSING = RANK
      DO 10 STEP = 1, RANKS - 1
        CALL MPI_SENDRECV_REPLACE(PASSING, 1, MPI_INTEGER,
     &       MOD(RANK + 1, RANKS), 0, MOD(RANK + RANKS - 1, RANKS), 0,
     &       MPI_COMM_WORLD, STATUS, IERROR)
        TOTAL = TOTAL + PASSING
   10 CONTINUE
      IF (RANK .EQ. 0) PRINT '(A,I0,A,I0)',
     &  'mpif.h: ', RANKS, ' ranks, sum ', TOTAL
      CALL MPI_FINALIZE(IERROR)
      IF (TOTAL .NE. RANKS * (RANKS - 1) / 2) STOP 1
      END
