package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weir-stream/weir/internal/localcluster"
)

// disturb kills one process after the other, each after results have flowed again for a while.
func (d *Demo) disturb(ctx context.Context) error {
	if err := d.awaitOutput(ctx, d.began); err != nil {
		return err
	}
	d.say("running")
	if err := sleep(ctx, firstKill); err != nil {
		return err
	}
	for _, role := range d.o.Kills {
		kill := d.killNode
		if role == localcluster.Worker {
			kill = d.killWorker
		}
		at, err := kill(ctx, role)
		if err != nil {
			return err
		}
		if err := d.recovered(ctx, at); err != nil {
			return err
		}
		d.say("recovered")
		if err := sleep(ctx, calm); err != nil {
			return err
		}
	}
	return nil
}

// killNode kills a node and starts it again; it returns when it was killed.
func (d *Demo) killNode(ctx context.Context, role localcluster.Role) (time.Time, error) {
	victim, err := d.victim(ctx, role)
	if err != nil {
		return time.Time{}, err
	}
	pid := victim.PID()
	at := d.killed(Kill{Role: string(role), ID: victim.ID, PID: pid})
	if err := victim.Kill(); err != nil {
		return at, err
	}
	d.logf("killed %s %s (kill -9 %d)", role, victim.ID, pid)
	d.say(fmt.Sprintf("%s is dead", victim.ID))
	if err := sleep(ctx, restartAfter); err != nil {
		return at, err
	}
	if err := victim.Start(); err != nil {
		return at, err
	}
	d.logf("started %s again, pid %d", victim.ID, victim.PID())
	return at, nil
}

// killWorker kills a worker of the job, which its TaskManager reports; it returns when it was killed.
func (d *Demo) killWorker(ctx context.Context, role localcluster.Role) (time.Time, error) {
	tm, err := d.victim(ctx, role)
	if err != nil {
		return time.Time{}, err
	}
	pids := tm.Children()
	if len(pids) == 0 {
		return time.Time{}, fmt.Errorf("no worker of %s is known: workers are found on Linux only", tm.ID)
	}
	at := d.killed(Kill{Role: string(role), ID: "worker of " + tm.ID, PID: pids[0]})
	if err := kill(pids[0]); err != nil {
		return at, fmt.Errorf("kill the worker of %s: %w", tm.ID, err)
	}
	d.logf("killed the worker of %s (kill -9 %d)", tm.ID, pids[0])
	d.say(fmt.Sprintf("the worker of %s is dead", tm.ID))
	return at, nil
}

func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// killed files a kill that happens now, and returns when that is.
func (d *Demo) killed(k Kill) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := time.Now()
	d.gaps.next(at)
	d.kills = append(d.kills, k)
	return at
}

// recovered waits until the cluster is whole, the job runs, and results have come since the kill.
func (d *Demo) recovered(ctx context.Context, killed time.Time) error {
	ready, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.cluster.WaitReady(ready); err != nil {
		return err
	}
	for {
		if err := d.jobs.refresh(ctx); err != nil {
			return err
		}
		if d.jobs.running() {
			break
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return d.awaitOutput(ctx, killed)
}

// awaitOutput waits for a result later than since; it gives up waiting, without an error, when every result is in already.
func (d *Demo) awaitOutput(ctx context.Context, since time.Time) error {
	for begin := time.Now(); ; {
		d.mu.Lock()
		last, complete := d.ledger.LastOutput, d.ledger.Complete()
		d.mu.Unlock()
		if last.After(since) || complete {
			return nil
		}
		if time.Since(begin) > silence {
			return fmt.Errorf("no committed output for %s; %s", silence, d.jobs.describe())
		}
		if err := d.jobs.refresh(ctx); err != nil {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// victim chooses a node: the leading JobManager, or a TaskManager that runs tasks of the job.
func (d *Demo) victim(ctx context.Context, role localcluster.Role) (*localcluster.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if role == localcluster.JobManager {
		return d.cluster.WaitLeader(ctx)
	}
	if err := d.jobs.refresh(ctx); err != nil {
		return nil, err
	}
	busy := d.jobs.hosts()
	var other *localcluster.Process
	for _, p := range d.cluster.TaskManagers() {
		if !p.Running() {
			continue
		}
		if busy[p.ID] {
			return p, nil
		}
		other = p
	}
	if other == nil {
		return nil, errors.New("no TaskManager runs")
	}
	return other, nil
}
