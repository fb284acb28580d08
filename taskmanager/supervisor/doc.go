// Package supervisor runs one process per job attempt and answers for it.
//
// A worker process is started with a process group of its own from a thread that lives as long as the supervisor, because the
// kernel's death signal follows the thread that forked. It connects to a unix socket made for it alone, proves itself by a token, and
// then takes commands and sends events, both relayed in order. The supervisor notices its death by waiting for it and its silence by
// heartbeats, keeps what it prints within bounds, and reports it as exited only when the kernel has reaped it and its group is killed:
// from then on nothing of it can write anything any more.
//
// What a killed supervisor left running is killed by its successor before anything else, found by pid and start time.
//
// Methods of [Supervisor] may be called concurrently and return soon; work goes on in goroutines that Close waits for. Reports are
// made from those goroutines, in order per worker.
package supervisor
