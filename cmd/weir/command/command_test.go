package command_test

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weir-stream/weir/cmd/weir/command"
	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/version"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// cluster is a fake leader.
type cluster struct {
	jobv1.UnimplementedJobServiceServer
	clusterv1.UnimplementedMembershipServiceServer
	address string
	server  *grpc.Server

	mu       sync.Mutex
	jobs     []*jobv1.Job // what GetJob answers, one after the other, the last one for ever
	err      error
	hang     func(proto.Message) bool // whether a request stays without an answer
	requests []proto.Message
	uploaded []byte
	noLogs   bool
	unasked  map[string]error // jobs of whose transactions nobody can tell
}

func newCluster(t *testing.T, jobs ...*jobv1.Job) *cluster {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cluster{address: l.Addr().String(), jobs: jobs}
	server := grpc.NewServer(grpc.UnaryInterceptor(grpcerr.UnaryServerInterceptor), grpc.StreamInterceptor(grpcerr.StreamServerInterceptor))
	jobv1.RegisterJobServiceServer(server, c)
	clusterv1.RegisterMembershipServiceServer(server, c)
	c.server = server
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return c
}

// take records a request and returns the error to answer with.
func (c *cluster) take(ctx context.Context, m proto.Message) error {
	c.mu.Lock()
	c.requests = append(c.requests, m)
	hang, err := c.hang != nil && c.hang(m), c.err
	c.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func find[T proto.Message](t *testing.T, c *cluster) T {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.requests {
		if r, ok := m.(T); ok {
			return r
		}
	}
	var none T
	require.Failf(t, "no such request", "%T", none)
	return none
}

func (c *cluster) GetJob(ctx context.Context, m *jobv1.GetJobRequest) (*jobv1.GetJobResponse, error) {
	if err := c.take(ctx, m); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) == 0 {
		return nil, grpcerr.ErrJobNotFound
	}
	j := c.jobs[0]
	if len(c.jobs) > 1 {
		c.jobs = c.jobs[1:]
	}
	return &jobv1.GetJobResponse{Job: j}, nil
}

func (c *cluster) ExplainJob(ctx context.Context, m *jobv1.ExplainJobRequest) (*jobv1.ExplainJobResponse, error) {
	return &jobv1.ExplainJobResponse{
		JobId: "job1", Name: "totals", State: jobv1.JobState_JOB_STATE_RUNNING, AtMs: 1764400000000, Summary: "It waits for count[0].",
		Findings: []*jobv1.Finding{
			{
				Kind: "checkpoint", Blocking: true, SinceMs: 1764399990000,
				Text:   "Checkpoint 8 has been in progress for 10s: 1 of 2 tasks has not acknowledged it.\ncount[0] on h4 is processing records in count and has been at one batch for 9.5s; the barrier waits behind it.",
				Advice: "That task is slow or stuck in user code.",
			},
			{Kind: "failure", Text: "Attempt 2 failed 30s ago: boom"},
		},
	}, c.take(ctx, m)
}

func (c *cluster) ListJobs(ctx context.Context, m *jobv1.ListJobsRequest) (*jobv1.ListJobsResponse, error) {
	return &jobv1.ListJobsResponse{Jobs: c.jobs, FreeSlots: 1, TotalSlots: 4}, c.take(ctx, m)
}

func (c *cluster) SubmitJob(ctx context.Context, m *jobv1.SubmitJobRequest) (*jobv1.SubmitJobResponse, error) {
	return &jobv1.SubmitJobResponse{JobId: "job1"}, c.take(ctx, m)
}

func (c *cluster) CancelJob(ctx context.Context, m *jobv1.CancelJobRequest) (*jobv1.CancelJobResponse, error) {
	return &jobv1.CancelJobResponse{JobId: "job1"}, c.take(ctx, m)
}

func (c *cluster) StopJob(ctx context.Context, m *jobv1.StopJobRequest) (*jobv1.StopJobResponse, error) {
	return &jobv1.StopJobResponse{JobId: "job1"}, c.take(ctx, m)
}

func (c *cluster) CreateSavepoint(ctx context.Context, m *jobv1.CreateSavepointRequest) (*jobv1.CreateSavepointResponse, error) {
	return &jobv1.CreateSavepointResponse{Path: "file:///sp/1", Checkpoint: 7}, c.take(ctx, m)
}

func (c *cluster) ListCheckpoints(ctx context.Context, m *jobv1.ListCheckpointsRequest) (*jobv1.ListCheckpointsResponse, error) {
	return &jobv1.ListCheckpointsResponse{Checkpoints: []*jobv1.Checkpoint{
		{Id: 8, Attempt: 2, State: "in progress", TriggeredAtMs: 1764400000000, WaitingFor: []string{"count/1"}},
		{
			Id: 7, Attempt: 2, State: "completed", TriggeredAtMs: 1764399999000, DurationMs: 84, DeltaBytes: 2048, TotalBytes: 5 << 20, Savepoint: true, Path: "file:///sp/1",
			AlignmentMs: 31, SyncMs: 1, AsyncMs: 40, SlowestTask: "count[1]", SlowestMs: 77, Full: true,
		},
		{Id: 6, Attempt: 1, State: "failed", TriggeredAtMs: 1764399998000, DurationMs: 60000, Failure: "no space left on file:///srv"},
	}, Savepoints: []*jobv1.TakenSavepoint{
		{Path: "file:///sp/savepoint-job1-7", Checkpoint: 7, AtMs: 1764400000000},
		{AtMs: 1764390000000, Error: "no space left on file:///sp"},
	}}, c.take(ctx, m)
}

func (c *cluster) SweepStorage(ctx context.Context, m *jobv1.SweepStorageRequest) (*jobv1.SweepStorageResponse, error) {
	c.mu.Lock()
	more := len(c.requests) == 0 && !m.GetDryRun()
	c.mu.Unlock()
	resp := &jobv1.SweepStorageResponse{More: more, Orphans: []*jobv1.Orphan{{
		Name: "c/jobs/job0/state/1/count-0/count/5-0", Size: 3 << 20, AgeMs: 50 * 3600 * 1000, Reason: "its job is not known any more",
	}}}
	if !more {
		resp.LeftAlone = []string{"files of job job1: c/jobs/job1/checkpoints/7/metadata cannot be read: it is damaged"}
		if !m.GetDryRun() {
			resp.Orphans = append(resp.Orphans, &jobv1.Orphan{
				Name: "c/jobs/job2/checkpoints/3/metadata", Size: 500, AgeMs: 25 * 3600 * 1000,
				Reason: "its job has ended, and no checkpoint that is kept needs it", Error: "permission denied",
			})
		}
	}
	return resp, c.take(ctx, m)
}

func (c *cluster) ReadLogs(m *jobv1.ReadLogsRequest, st grpc.ServerStreamingServer[jobv1.ReadLogsResponse]) error {
	if c.noLogs {
		return c.take(st.Context(), m)
	}
	for _, r := range []*jobv1.ReadLogsResponse{
		{TaskmanagerId: "tm1", Attempt: 1, Chunk: []byte("one\ntwo\n")},
		{TaskmanagerId: "tm1", Attempt: 1, Chunk: []byte("three\n")},
		{TaskmanagerId: "tm2", Attempt: 1, Chunk: []byte("other\n")},
	} {
		if err := st.Send(r); err != nil {
			return err
		}
	}
	return c.take(st.Context(), m)
}

func (c *cluster) UploadArtifact(st grpc.ClientStreamingServer[jobv1.UploadArtifactRequest, jobv1.UploadArtifactResponse]) error {
	var first *jobv1.UploadArtifactRequest
	var content []byte
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if first == nil {
			first = m
		}
		content = append(content, m.GetChunk()...)
	}
	c.mu.Lock()
	c.uploaded = content
	c.mu.Unlock()
	if err := c.take(st.Context(), first); err != nil {
		return err
	}
	return st.SendAndClose(&jobv1.UploadArtifactResponse{})
}

func (c *cluster) ListTransactions(ctx context.Context, m *jobv1.ListTransactionsRequest) (*jobv1.ListTransactionsResponse, error) {
	if err := c.take(ctx, m); err != nil {
		return nil, err
	}
	if err := c.unasked[m.GetJob()]; err != nil {
		return nil, err
	}
	return &jobv1.ListTransactionsResponse{JobId: m.GetJob(), Name: "totals"}, nil
}

func (c *cluster) ResolveTransaction(ctx context.Context, m *jobv1.ResolveTransactionRequest) (*jobv1.ResolveTransactionResponse, error) {
	if err := c.take(ctx, m); err != nil {
		return nil, err
	}
	return &jobv1.ResolveTransactionResponse{JobId: m.GetJob(), Transaction: &jobv1.Transaction{Id: m.GetTransaction(), State: jobv1.TransactionState_TRANSACTION_STATE_ABORTED}}, nil
}

func (c *cluster) ListMembers(ctx context.Context, m *clusterv1.ListMembersRequest) (*clusterv1.ListMembersResponse, error) {
	return &clusterv1.ListMembersResponse{
		ClusterId: "c1", Term: 3,
		Members: []*clusterv1.Member{
			{Id: "jm1", RaftAddress: "h1:6124", Address: "h1:6123", Voter: true, Leader: true, Level: 18},
			{Id: "jm2", RaftAddress: "h2:6124", Voter: true, Trouble: "no space left in /d"},
		},
		Taskmanagers: []*clusterv1.TaskManager{{Id: "tm1", Host: "h3", Slots: 4, FreeSlots: 1, Version: "1.0", LastSeenMs: 350}},
	}, c.take(ctx, m)
}

func (c *cluster) RemoveMember(ctx context.Context, m *clusterv1.RemoveMemberRequest) (*clusterv1.RemoveMemberResponse, error) {
	return &clusterv1.RemoveMemberResponse{}, c.take(ctx, m)
}

func (c *cluster) AddMember(ctx context.Context, m *clusterv1.AddMemberRequest) (*clusterv1.AddMemberResponse, error) {
	return &clusterv1.AddMemberResponse{}, c.take(ctx, m)
}

// run runs weir against the cluster.
func (c *cluster) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	return weir(t, []string{"WEIR_JOBMANAGER=" + c.address}, args...)
}

func weir(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	return weirIn(t.Context(), environ, args...)
}

func weirIn(ctx context.Context, environ []string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = command.Execute(ctx, args, command.IO{Out: &out, Err: &errs, Environ: environ})
	return code, out.String(), errs.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update")
	require.Empty(t, cmp.Diff(string(want), got), "run the test with -update if the change is meant")
}

// farFuture is a checkpoint's time whose age is zero whenever the test runs.
const farFuture = 4102444800000

func graph() *jobv1.Graph {
	return &jobv1.Graph{Name: "totals", Vertices: []*jobv1.Vertex{{Id: "a", Parallelism: 2}, {Id: "b", Parallelism: 4}}}
}

func runningJob() *jobv1.Job {
	return &jobv1.Job{
		Id: "job1", Name: "totals", State: jobv1.JobState_JOB_STATE_RUNNING, Attempt: 3, Restarts: 2, CreatedAtMs: 1764400000000,
		Graph: graph(), Args: []string{"--topic", "in"}, ArtifactSha256: "abc", Prepared: true, RecordsPerSecond: 15234.5, LagRecords: 3,
		LastCheckpoint: &jobv1.Checkpoint{Id: 7, TriggeredAtMs: farFuture, DurationMs: 84, TotalBytes: 5 << 20}, CompletedCheckpoints: 6,
		LastRecoveryMs: 1250,
		Restore: &jobv1.Restore{Attempt: 3, Checkpoint: 6, TotalUs: 1_312_400, Complete: true, Phases: []*jobv1.RestorePhase{
			{Name: "schedule", DurationUs: 1_020_000},
			{Name: "launch", DurationUs: 180_100},
			{Name: "open", DurationUs: 52_300},
			{Name: "first record", DurationUs: 60_000},
		}},
		Tasks: []*jobv1.Task{
			{Vertex: "a", Name: "orders[0]", Host: "h3", Statistics: &jobv1.TaskStatistics{RecordsIn: 5, RecordsOut: 12345, LagRecords: 3, WatermarkMs: proto.Int64(1764400000000)}},
			{Vertex: "b", Subtask: 1, Name: "sum → totals[1]", Host: "h4", Statistics: &jobv1.TaskStatistics{RecordsIn: 12345678, LagRecords: -1, StateBytes: 4096}},
		},
		Failures: []*jobv1.Failure{
			{AtMs: 1764400000500, Attempt: 1, Task: "orders[1]", Host: "h4", Message: "panic: boom", OutputTail: "main.f()\n"},
			{AtMs: 1764400001000, Attempt: 2, Task: "orders[0]", Host: "h3", Message: "connection refused", OutputTail: "dialing\nfailed\n"},
		},
	}
}

func endedJob(state jobv1.JobState) *jobv1.Job {
	return &jobv1.Job{Id: "job1", Name: "totals", State: state, Graph: graph(), LastCheckpoint: &jobv1.Checkpoint{Id: 9, TriggeredAtMs: farFuture}}
}

func TestAnIdleJobSaysThatItIs(t *testing.T) {
	idle, busy := runningJob(), runningJob()
	idle.LastCheckpoint.AgeMs, idle.UncoveredMs = proto.Uint64(423_000), proto.Uint64(0)
	busy.LastCheckpoint.AgeMs, busy.UncoveredMs = proto.Uint64(423_000), proto.Uint64(422_000)
	_, out, _ := newCluster(t, idle).run(t, "list")
	require.Contains(t, out, "  7m3s ago, idle  ")
	_, out, _ = newCluster(t, idle).run(t, "show", "totals")
	require.Contains(t, out, "7, completed 7m3s ago in 84ms, 5.0 MiB to restore (6 completed in all); idle since\n")
	_, out, _ = newCluster(t, busy).run(t, "list")
	require.Contains(t, out, "  7m3s ago  ")
	_, out, _ = newCluster(t, busy).run(t, "show", "totals")
	require.NotContains(t, out, "idle")
}

func TestHelpOfEveryCommandHasAnExample(t *testing.T) {
	root := command.New(command.IO{Out: io.Discard, Err: io.Discard})
	var all strings.Builder
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c != root {
			require.NotEmpty(t, c.Example, c.CommandPath())
			require.NotEmpty(t, c.Short, c.CommandPath())
			require.NotNil(t, c.Args, c.CommandPath())
			all.WriteString("$ " + c.CommandPath() + " --help\n")
		} else {
			all.WriteString("$ weir --help\n")
		}
		_, out, _ := weir(t, nil, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		all.WriteString(out)
		all.WriteString("\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "completion" && sub.Name() != "help" {
				visit(sub)
			}
		}
	}
	visit(root)
	golden(t, "help", all.String())
}

func TestTables(t *testing.T) {
	waiting := endedJob(jobv1.JobState_JOB_STATE_CREATED)
	waiting.Id, waiting.WaitingFor, waiting.LastCheckpoint, waiting.LagRecords = "job2", "needs 4 slots, 1 free on 1 TaskManager", nil, -1
	for name, c := range map[string]struct {
		jobs []*jobv1.Job
		args []string
	}{
		"list":        {[]*jobv1.Job{runningJob(), waiting, endedJob(jobv1.JobState_JOB_STATE_STOPPED)}, []string{"list", "--all"}},
		"show":        {[]*jobv1.Job{runningJob()}, []string{"show", "totals"}},
		"checkpoints": {nil, []string{"checkpoints", "totals"}},
		"explain":     {nil, []string{"explain", "totals"}},
		"logs":        {nil, []string{"logs", "totals", "--tail", "5"}},
		"members":     {nil, []string{"members"}},
		"sweep":       {nil, []string{"storage", "sweep", "--dry-run"}},
		"list_json":   {[]*jobv1.Job{endedJob(jobv1.JobState_JOB_STATE_FAILED)}, []string{"list", "-o", "json"}},
		"logs_json":   {nil, []string{"logs", "totals", "-o", "json"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, messages := newCluster(t, c.jobs...).run(t, c.args...)
			require.Zero(t, code, messages)
			golden(t, name, "stdout:\n"+out+"\nstderr:\n"+messages)
		})
	}
}

func TestSweepGoesOnAndTellsWhatItCouldNotDelete(t *testing.T) {
	c := newCluster(t)
	code, out, messages := c.run(t, "storage", "sweep", "--older-than", "25h")
	require.Equal(t, 1, code)
	require.Len(t, c.requests, 2, "there were more than one answer held")
	for _, m := range c.requests {
		require.EqualValues(t, 25*3600*1000, m.(*jobv1.SweepStorageRequest).GetOlderThanMs())
		require.False(t, m.(*jobv1.SweepStorageRequest).GetDryRun())
	}
	require.Contains(t, out, "needs it; not deleted: permission denied\n")
	require.Contains(t, out, "2 files with 6.0 MiB deleted\n")
	require.Contains(t, messages, "left alone: files of job job1")
	require.Contains(t, messages, "1 of 3 files could not be deleted")
}

func TestAStopThatLostOutputFails(t *testing.T) {
	j := endedJob(jobv1.JobState_JOB_STATE_STOPPED)
	j.Unsettled = ""
	j.Lost = []*jobv1.LostOutput{{Transaction: "t1", Records: 70}, {Transaction: "t2", Records: 30}, {Transaction: "t3", Records: 5, Accepted: true}}
	code, out, messages := newCluster(t, j).run(t, "stop", "totals")
	require.Equal(t, 1, code)
	require.NotEmpty(t, out, "it is stopped all the same")
	require.Contains(t, messages, "is lost: transactions 2, records 100;")
	j.Lost = j.Lost[2:]
	code, _, messages = newCluster(t, j).run(t, "stop", "totals")
	require.Zero(t, code, messages)
}

func TestJSONReadsBack(t *testing.T) {
	code, out, _ := newCluster(t, runningJob()).run(t, "show", "totals", "-o", "json")
	require.Zero(t, code)
	got := &jobv1.Job{}
	require.NoError(t, protojson.Unmarshal([]byte(out), got))
	require.True(t, proto.Equal(runningJob(), got))
}

func jobBinary(t *testing.T) string {
	self, err := os.Executable()
	require.NoError(t, err)
	return self
}

func TestSubmit(t *testing.T) {
	deploying := endedJob(jobv1.JobState_JOB_STATE_DEPLOYING)
	c := newCluster(t, deploying, deploying, runningJob())
	code, out, messages := c.run(t, "submit", jobBinary(t), "-p", "4", "--name", "n", "--from", "file:///sp", "--allow-dropped-state", "--request-id", "r1",
		"--", "--brokers", "b:1", "-x")
	require.Zero(t, code, messages)
	require.Equal(t, "job1\n", out)
	content, err := os.ReadFile(jobBinary(t))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, c.uploaded))
	req := find[*jobv1.SubmitJobRequest](t, c)
	require.Equal(t, find[*jobv1.UploadArtifactRequest](t, c).GetSha256(), req.GetArtifactSha256())
	require.Len(t, req.GetArtifactSha256(), 64)
	req.ArtifactSha256 = ""
	require.Empty(t, cmp.Diff((&jobv1.SubmitJobRequest{
		RequestId: "r1", Name: "n", Args: []string{"--brokers", "b:1", "-x"}, Parallelism: 4, From: "file:///sp", AllowDroppedState: true,
		DefaultName: filepath.Base(jobBinary(t)),
	}).String(), req.String()))
}

func TestSubmitOutcomes(t *testing.T) {
	failed := endedJob(jobv1.JobState_JOB_STATE_FAILED)
	failed.Failures = []*jobv1.Failure{{Task: "totals/0", Host: "h1", Message: "SASL authentication failed"}}
	retried := endedJob(jobv1.JobState_JOB_STATE_RESTARTING)
	retried.Failures = failed.Failures
	waiting := endedJob(jobv1.JobState_JOB_STATE_CREATED)
	waiting.WaitingFor = "needs 4 slots, 1 free on 1 TaskManager"
	for name, c := range map[string]struct {
		job  *jobv1.Job
		code int
		says string
	}{
		"failed":        {failed, 1, "totals/0 on h1: SASL authentication failed"},
		"retried":       {retried, 1, "SASL authentication failed"},
		"without slots": {waiting, 0, "still waiting and starts by itself: needs 4 slots"},
		"slow":          {endedJob(jobv1.JobState_JOB_STATE_DEPLOYING), 0, "not prepared yet (DEPLOYING)"},
		"finished":      {endedJob(jobv1.JobState_JOB_STATE_FINISHED), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, messages := newCluster(t, c.job).run(t, "submit", jobBinary(t), "--wait", "300ms")
			require.Equal(t, c.code, code)
			if name == "failed" {
				require.Empty(t, out, "nothing is left to use the id for")
				require.Contains(t, messages, "job1")
			} else {
				require.Equal(t, "job1\n", out)
			}
			require.Contains(t, messages, c.says)
		})
	}
	t.Run("fails and settles, which marks it as prepared", func(t *testing.T) {
		settling := endedJob(jobv1.JobState_JOB_STATE_SETTLING)
		settling.Prepared, settling.Failures = true, failed.Failures
		settled := endedJob(jobv1.JobState_JOB_STATE_FAILED)
		settled.Prepared, settled.Failures = true, failed.Failures
		code, out, messages := newCluster(t, settling, settling, settled).run(t, "submit", jobBinary(t))
		require.Equal(t, 1, code)
		require.Empty(t, out)
		require.Contains(t, messages, "job job1 failed: totals/0 on h1: SASL authentication failed")

		code, _, messages = newCluster(t, settling).run(t, "submit", jobBinary(t), "--wait", "150ms")
		require.Equal(t, 1, code)
		require.Contains(t, messages, "is ending")
		require.Contains(t, messages, "SASL authentication failed")
	})
	t.Run("says what it waits for, once", func(t *testing.T) {
		fewer := endedJob(jobv1.JobState_JOB_STATE_CREATED)
		fewer.WaitingFor = "needs 4 slots, 2 free on 1 TaskManager"
		passing := endedJob(jobv1.JobState_JOB_STATE_CREATED)
		passing.WaitingFor = "tasks to prepare: a[0], for 0s"
		code, _, messages := newCluster(t, waiting, waiting, waiting, fewer, fewer, passing, runningJob()).run(t, "submit", jobBinary(t))
		require.Zero(t, code, messages)
		require.Equal(t, "job job1 is waiting: needs 4 slots, 1 free on 1 TaskManager\njob job1 is waiting: needs 4 slots, 2 free on 1 TaskManager\n", messages)
	})
	t.Run("detached", func(t *testing.T) {
		code, out, _ := newCluster(t).run(t, "submit", jobBinary(t), "--detach", "-o", "json")
		require.Zero(t, code)
		require.JSONEq(t, `{"jobId": "job1"}`, out)
	})
	t.Run("refused", func(t *testing.T) {
		c := newCluster(t)
		c.err = grpcerr.ErrNameTaken
		code, out, messages := c.run(t, "submit", jobBinary(t))
		require.Equal(t, 1, code)
		require.Empty(t, out)
		require.Contains(t, messages, "job name is taken")
	})
	t.Run("unknown outcome", func(t *testing.T) {
		c := newCluster(t)
		c.err = grpcerr.ErrUnknownOutcome
		code, _, messages := c.run(t, "cancel", "job1", "--request-id", "r7", "--patience", "300ms")
		require.Equal(t, 3, code)
		require.Contains(t, messages, "unknown")
		require.Contains(t, messages, "r7")
		require.Contains(t, messages, "--request-id")
	})
}

func TestSubmitRefusesWhatNoTaskManagerCouldRun(t *testing.T) {
	write := func(content string) string {
		p := filepath.Join(t.TempDir(), "job")
		require.NoError(t, os.WriteFile(p, []byte(content), 0o700))
		return p
	}
	for path, want := range map[string]string{
		filepath.Join(t.TempDir(), "absent"): "no such file",
		t.TempDir():                          "is a directory",
		write("#!/bin/sh\n"):                 "is not an executable",
		write("MZ\x90\x00"):                  "GOOS=linux",
		write(""):                            "is not an executable",
		write(elf.ELFMAG + "\x02\x01\x01 and no more"): "damaged",
	} {
		code, out, messages := newCluster(t).run(t, "submit", path)
		require.Equal(t, 1, code)
		require.Empty(t, out)
		require.Contains(t, messages, want)
	}
}

func TestSubmitNotesAnotherArchitecture(t *testing.T) {
	content, err := os.ReadFile(jobBinary(t))
	require.NoError(t, err)
	content[18], content[19] = byte(elf.EM_RISCV), 0
	p := filepath.Join(t.TempDir(), "job")
	require.NoError(t, os.WriteFile(p, content, 0o700))
	code, _, messages := newCluster(t, runningJob()).run(t, "submit", p)
	require.Zero(t, code)
	require.Contains(t, messages, "riscv64")
}

func TestCancelWaitsForTheEnd(t *testing.T) {
	c := newCluster(t, runningJob(), endedJob(jobv1.JobState_JOB_STATE_SETTLING), endedJob(jobv1.JobState_JOB_STATE_CANCELED))
	code, out, _ := c.run(t, "cancel", "totals")
	require.Zero(t, code)
	require.Equal(t, "job1 CANCELED\n", out)
	require.NotEmpty(t, find[*jobv1.CancelJobRequest](t, c).GetRequestId())

	code, _, messages := newCluster(t, runningJob()).run(t, "cancel", "totals", "--wait", "150ms")
	require.Equal(t, 4, code)
	require.Contains(t, messages, "has not ended after 150ms")

	open := endedJob(jobv1.JobState_JOB_STATE_CANCELED)
	open.Unsettled = "2 transactions: broker unreachable"
	code, _, messages = newCluster(t, open).run(t, "cancel", "totals")
	require.Equal(t, 1, code)
	require.Contains(t, messages, "broker unreachable")
}

func TestStopPrintsWhereToGoOn(t *testing.T) {
	saved := endedJob(jobv1.JobState_JOB_STATE_STOPPED)
	saved.SavepointPath = "file:///sp/9"
	c := newCluster(t, runningJob(), saved)
	code, out, _ := c.run(t, "stop", "totals", "--savepoint", "file:///sp")
	require.Zero(t, code)
	require.Equal(t, "file:///sp/9\n", out)
	require.Equal(t, "file:///sp", find[*jobv1.StopJobRequest](t, c).GetSavepointDir())

	code, out, _ = newCluster(t, endedJob(jobv1.JobState_JOB_STATE_STOPPED)).run(t, "stop", "totals")
	require.Zero(t, code)
	require.Equal(t, "job1@9\n", out)

	code, _, messages := newCluster(t, endedJob(jobv1.JobState_JOB_STATE_FAILED)).run(t, "stop", "totals")
	require.Equal(t, 1, code)
	require.Contains(t, messages, "FAILED")

	c = newCluster(t)
	c.err = grpcerr.ErrSavepointFailed
	code, out, messages = c.run(t, "stop", "totals")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Contains(t, messages, "savepoint failed")
}

func TestSavepointPrintsItsPath(t *testing.T) {
	code, out, _ := newCluster(t).run(t, "savepoint", "totals")
	require.Zero(t, code)
	require.Equal(t, "file:///sp/1\n", out)
}

func TestMembershipChanges(t *testing.T) {
	c := newCluster(t)
	code, out, _ := c.run(t, "members", "add", "jm4", "h4:6124")
	require.Zero(t, code)
	require.Equal(t, "jm4 is a member, with raft address h4:6124; it votes once it has caught up, see 'weir members'\n", out)
	require.Equal(t, "h4:6124", find[*clusterv1.AddMemberRequest](t, c).GetRaftAddress())
	code, out, _ = c.run(t, "members", "remove", "jm4")
	require.Zero(t, code)
	require.Equal(t, "jm4 is not a member any more\n", out)
	require.Equal(t, "jm4", find[*clusterv1.RemoveMemberRequest](t, c).GetId())
	code, out, _ = c.run(t, "members", "replace", "jm2")
	require.Zero(t, code)
	require.Contains(t, out, "jm2 is being replaced")
	code, out, _ = c.run(t, "members", "remove", "jm4", "-o", "json")
	require.Zero(t, code)
	require.JSONEq(t, "{}", out)
}

func TestNoLogsAreKept(t *testing.T) {
	c := newCluster(t)
	c.noLogs = true
	code, out, messages := c.run(t, "logs", "totals", "--attempt", "3")
	require.Zero(t, code)
	require.Empty(t, out)
	require.Equal(t, "nothing is kept of what attempt 3 of job totals wrote\n", messages)
}

func TestMistakesExitWith2AndNothingOnStdout(t *testing.T) {
	for _, args := range [][]string{
		{"frobnicate"},
		{"list", "extra"},
		{"show"},
		{"list", "--nope"},
		{"list", "-o", "xml"},
		{"submit"},
		{"submit", "a", "b"},
		{"submit", "a", "-p", "-1"},
		{"submit", "a", "-p", "99999"},
		{"submit", "a", "--wait", "-5s"},
		{"stop", "a", "--wait", "0s"},
		{"cancel", "a", "--wait", "-1ms"},
		{"list", "--patience", "-1s"},
		{"list", "--patience", "soon"},
		{"taskmanager", "--log-level", "loud"},
		{"version", "-o", "yaml"},
	} {
		code, out, messages := weir(t, nil, args...)
		require.Equal(t, 2, code, args)
		require.Empty(t, out, args)
		require.True(t, strings.HasPrefix(messages, "weir: "), args)
	}
}

func TestMistakesNameTheWayOut(t *testing.T) {
	for want, args := range map[string][]string{
		"weir: unknown command \"submitt\" for \"weir\"; did you mean 'weir submit'?\nSee 'weir --help'\n":                 {"submitt"},
		"weir: unknown command \"frobnicate\" for \"weir\"\nSee 'weir --help'\n":                                           {"frobnicate"},
		"weir: unknown command \"ad\" for \"weir members\"; did you mean 'weir members add'?\nSee 'weir members --help'\n": {"members", "ad"},
		"weir: unknown flag: --brokers\nArguments of the job follow after --, as in 'weir submit ./job -- --brokers localhost:9092'\n" +
			"See 'weir submit --help'\n": {"submit", "./job", "--brokers", "b:1"},
	} {
		code, _, messages := weir(t, nil, args...)
		require.Equal(t, 2, code)
		require.Equal(t, want, messages)
	}
	_, _, messages := weir(t, nil, "submit", "./job", "--wait", "soon")
	require.NotContains(t, messages, "follow after --")
}

func TestNamesThatNoJobCanHave(t *testing.T) {
	for name, says := range map[string]string{
		"":                       "1 to 128 bytes, this one 0",
		strings.Repeat("n", 129): "1 to 128 bytes, this one 129",
		"a\nb":                   `this one has '\n'`,
		"a\x1b[31m":              `this one has '\x1b'`,
		"a@1":                    `this one has '@'`,
		"a/../b":                 `this one has '/'`,
		"a\xff":                  "this one has",
		" a":                     "no blanks around it",
	} {
		c := newCluster(t, runningJob())
		code, out, messages := c.run(t, "submit", jobBinary(t), "--name", name)
		require.Equal(t, 2, code, name)
		require.Empty(t, out)
		require.Contains(t, messages, says, name)
		require.Empty(t, c.requests)
	}
	code, _, messages := newCluster(t, runningJob()).run(t, "submit", jobBinary(t), "--name", "Größe der Bestellungen "+strings.Repeat("n", 90))
	require.Zero(t, code, messages)
}

func TestNumberOfArguments(t *testing.T) {
	_, _, messages := weir(t, nil, "list", "extra")
	require.Contains(t, messages, "expected no arguments, got 1 argument\n")
	_, _, messages = weir(t, nil, "show", "a", "b")
	require.Contains(t, messages, "expected JOB, got 2 arguments\n")
}

func TestUnknownJob(t *testing.T) {
	code, out, messages := newCluster(t).run(t, "show", "nothing")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "weir: job not found\n", messages)
}

func TestNoCluster(t *testing.T) {
	code, _, messages := weir(t, nil, "list", "--jobmanager", "127.0.0.1:1", "--patience", "200ms")
	require.Equal(t, 1, code)
	require.Contains(t, messages, "no leading JobManager was found within 200ms: asked 127.0.0.1:1 (cannot connect)\n")
	require.Contains(t, messages, "set with --jobmanager or WEIR_JOBMANAGER")
	for _, address := range []string{"jm1", "jm1:", ":6123", "::1", ""} {
		code, _, messages := weir(t, nil, "list", "--jobmanager", "127.0.0.1:1, "+address)
		require.Equal(t, 2, code, address)
		require.Contains(t, messages, fmt.Sprintf("--jobmanager or WEIR_JOBMANAGER: %q is not host:port", address))
	}
}

func TestConfigShowsWhatWouldRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tm.yaml")
	require.NoError(t, os.WriteFile(file, []byte("slots: 3\nstorage_url: file:///srv/weir\ncancel_deadline: 9s\nstate_memory: 1GiB\nhost: here\n"), 0o600))
	environ := []string{"WEIR_TM_SLOTS=5", "WEIR_TM_CONFIG=" + file, "WEIR_TM_LOG_RETENTION=64MiB"}
	code, out, messages := weir(t, environ, "config", "taskmanager", "--slots", "7")
	require.Zero(t, code, messages)
	golden(t, "config_taskmanager", out)

	code, _, messages = weir(t, append(environ, "WEIR_TM_SLOT=1"), "config", "taskmanager", "--cancel-deadline", "1h", "--bind-host", "0.0.0.0")
	require.Equal(t, 1, code)
	require.Contains(t, messages, "WEIR_TM_SLOT: no such setting")

	code, _, messages = weir(t, environ, "config", "taskmanager", "--cancel-deadline", "1h", "--bind-host", "0.0.0.0")
	require.Equal(t, 1, code)
	require.Contains(t, messages, "cancel_deadline: 1h0m0s is not within")
	require.Contains(t, messages, "bind_host: 0.0.0.0 is not a loopback address")

	require.NoError(t, os.WriteFile(file, []byte("slots: 3\nslotz: 4\n"), 0o600))
	code, _, messages = weir(t, environ, "taskmanager")
	require.Equal(t, 1, code)
	require.Contains(t, messages, "line 2: slotz")

	code, _, messages = weir(t, environ, "config", "taskmanager", "--config=", "--storage-url", "file:///s", "--tls-cert", "c", "--tls-key", "k", "--tls-ca", "/no/ca")
	require.Equal(t, 1, code)
	require.Contains(t, messages, "tls_ca: read the authorities: open /no/ca")

	code, out, messages = weir(t, nil, "config", "jobmanager", "--data-dir", "/d", "--storage-url", "file:///s", "-o", "json")
	require.Zero(t, code, messages)
	require.Contains(t, out, `"data_dir": "/d"`)
}

func TestVersion(t *testing.T) {
	code, out, _ := weir(t, nil, "version")
	require.Zero(t, code)
	require.Contains(t, out, fmt.Sprintf("protocol %d to %d", version.ProtocolMin, version.ProtocolMax))
}

func TestCompletionKnowsTheJobs(t *testing.T) {
	code, out, _ := newCluster(t, runningJob()).run(t, "__complete", "cancel", "")
	require.Zero(t, code)
	require.Contains(t, out, "job1\ttotals, RUNNING")
	code, out, _ = weir(t, nil, "completion", "bash")
	require.Zero(t, code)
	require.Contains(t, out, "weir")
}
