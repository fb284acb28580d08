package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/version"
)

// Plan runs a job binary in plan mode and reports the result.
func (s *Supervisor) Plan(m *clusterv1.PlanJob) {
	s.goRun(func(ctx context.Context) {
		answer := &clusterv1.JobPlanned{PlanId: m.GetPlanId()}
		result, err := s.plan(ctx, m)
		if err != nil {
			answer.Error = err.Error()
		} else {
			answer.Result = result
		}
		s.cfg.Report(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_JobPlanned{JobPlanned: answer}})
	})
}

func (s *Supervisor) plan(ctx context.Context, m *clusterv1.PlanJob) (*jobv1.PlanResult, error) {
	s.mu.Lock()
	cluster := s.cluster
	s.mu.Unlock()
	binary, release, err := s.artifacts.acquire(ctx, s.cfg.Bucket, cluster, m.GetArtifactSha256())
	if err != nil {
		return nil, err
	}
	defer release()
	work, err := filepath.Abs(filepath.Join(s.cfg.Dir, "work"))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(work, "plan-")
	if err != nil {
		return nil, fmt.Errorf("making a scratch directory: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			s.cfg.Logger.Warn("scratch files not removed", "dir", dir, "err", err)
		}
	}()

	file := filepath.Join(dir, "plan")
	out := &output{}
	env := []string{"WEIR_MODE=plan", "WEIR_PLAN_OUTPUT=" + file, "WEIR_JOB_NAME=" + m.GetName(), "WEIR_JOB_DEFAULT_NAME=" + m.GetDefaultName()}
	if n := m.GetParallelism(); n > 0 {
		env = append(env, "WEIR_PARALLELISM="+strconv.FormatUint(uint64(n), 10))
	}
	env = append(env, operatorParallelism(m.GetOperatorParallelism())...)
	newCmd := func() *exec.Cmd { return jobCommand(binary, m.GetArtifactSha256(), m.GetArgs(), dir, out, env...) }
	p, err := s.startIsolated(newCmd)
	if err != nil {
		return nil, startError(err, binary)
	}
	limit := time.NewTimer(s.cfg.PlanTimeout)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.kill()
		<-p.done
		return nil, errors.New("the TaskManager is stopping")
	case <-limit.C:
		p.kill()
		<-p.done
		return nil, fmt.Errorf("the job binary did not print its plan within %v and was killed: what it does before stream.Main must be quick and needs no network%s",
			s.cfg.PlanTimeout, quoted(out.tailText()))
	}
	return readPlan(file, p, out.tailText())
}

// operatorParallelism is the variable that tells a job binary the parallelism of operators, if there is any to tell.
func operatorParallelism(m map[string]uint32) []string {
	if len(m) == 0 {
		return nil
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, name+"="+strconv.FormatUint(uint64(m[name]), 10))
	}
	return []string{"WEIR_OPERATOR_PARALLELISM=" + strings.Join(lines, "\n")}
}

// startIsolated starts the command without a network where the system permits that, else with one.
func (s *Supervisor) startIsolated(newCmd func() *exec.Cmd) (*process, error) {
	pids := filepath.Join(s.cfg.Dir, "pids")
	cmd := newCmd()
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if isolate(cmd.SysProcAttr) {
		p, err := s.spawner.start(cmd, pids)
		if err == nil || errors.Is(err, syscall.ENOEXEC) {
			return p, err
		}
		s.cfg.Logger.Debug("plan runs with network access", "err", err)
	}
	return s.spawner.start(newCmd(), pids)
}

// readPlan reads what a finished run in plan mode left.
func readPlan(file string, p *process, tail string) (*jobv1.PlanResult, error) {
	how := fmt.Sprintf("exited with code %d", p.code)
	if p.signal != "" {
		how = "died of " + p.signal
	}
	raw, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, noPlan(how, p.code, tail)
	case err != nil:
		return nil, fmt.Errorf("reading the plan: %w", err)
	case p.code != 0:
		return nil, fmt.Errorf("the job binary %s while planning%s", how, quoted(tail))
	}
	result := &jobv1.PlanResult{}
	if err := proto.Unmarshal(raw, result); err != nil {
		return nil, fmt.Errorf("the job binary printed a plan that this TaskManager (weir %s) cannot read: %w", version.Version, err)
	}
	if _, ok := version.Common(result.GetProtocolMin(), result.GetProtocolMax()); !ok {
		return nil, protocolMismatch(result.GetProtocolMin(), result.GetProtocolMax())
	}
	if result.GetGraph() == nil && len(result.GetErrors()) == 0 {
		return nil, fmt.Errorf("the job binary printed an empty plan%s", quoted(tail))
	}
	return result, nil
}

// noPlan words that the program ended without a plan. What it printed comes first, since it is most likely the reason: arguments that
// the job does not take, say.
func noPlan(how string, code int, tail string) error {
	const hint = ": a Weir job binary calls stream.Main in its main function"
	switch {
	case tail == "":
		return fmt.Errorf("the binary printed nothing and %s without a plan%s", how, hint)
	case code == 0: // not as after a complaint
		return fmt.Errorf("the binary printed\n%sand %s without a plan%s", tail, how, hint)
	default:
		return fmt.Errorf("the job binary printed\n%sand %s without a plan", tail, how)
	}
}

// quoted appends a program's output to a message.
func quoted(tail string) string {
	if tail == "" {
		return "; it printed nothing"
	}
	return "; its output ends with:\n" + tail
}
