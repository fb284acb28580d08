package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/registry"
	"github.com/weir-stream/weir/statebackend/blob"
)

// planTimeout bounds the run of the binary in plan mode, the fetch of the binary by the TaskManager included.
const planTimeout = 2 * time.Minute

// While no TaskManager is connected a submit waits this long, the time in which one planned and left not counted.
const (
	planPatience = 5 * time.Second
	planRetry    = 100 * time.Millisecond
)

// maxNameLength bounds a job's name, in bytes.
const maxNameLength = 128

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{grpcerr.ErrInvalid}, args...)...)
}

// SubmitJob implements jobv1.JobServiceServer. A request id that is known gives the job of the first time.
func (s *Services) SubmitJob(ctx context.Context, req *jobv1.SubmitJobRequest) (*jobv1.SubmitJobResponse, error) {
	l, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetRequestId() == "" {
		return nil, invalid("a submit needs a request id")
	}
	if rec, ok := l.Log.View().ByRequest(req.GetRequestId()); ok {
		if err := sameSubmit(rec, req); err != nil {
			return nil, err
		}
		l.Jobs.Add(rec)
		return &jobv1.SubmitJobResponse{JobId: rec.GetId()}, nil
	}
	if rec, ok := l.Log.View().Live(req.GetName()); ok && req.GetName() != "" {
		return nil, nameTaken(rec)
	}
	parallelism := req.GetParallelism()
	if req.GetAutoParallelism() {
		if parallelism > 0 {
			return nil, invalid("the parallelism is either %d or chosen by the cluster", parallelism)
		}
		parallelism = 1
	}
	graph, err := s.plan(ctx, l, req, parallelism)
	if err != nil {
		return nil, err
	}
	if most := graph.GetMaxParallelism(); req.GetAutoParallelism() {
		if share := uint32(l.Jobs.Share("", most)); share > 1 {
			parallelism = share
			if graph, err = s.plan(ctx, l, req, parallelism); err != nil {
				return nil, err
			}
		}
	}
	from, err := s.restorePoint(ctx, l, req.GetFrom(), graph)
	if err != nil {
		return nil, err
	}
	var lost []*jobv1.LostOutput
	if from != nil {
		from.AllowDroppedState = req.GetAllowDroppedState()
	}
	if from != nil && !from.GetSavepoint() {
		parent, _, err := checkpointOf(l.Log.View(), req.GetFrom())
		if err != nil {
			return nil, err
		}
		if lost, from.LossPolicy, err = acceptedLosses(req, parent, from.GetCheckpoint()); err != nil {
			return nil, err
		}
	} else if req.GetAcceptLoss() || req.GetAcceptUnknown() {
		return nil, invalid("--accept-loss and --accept-unknown are for a start from the checkpoint of an ended job, with --from JOB@CHECKPOINT")
	}
	name := cmp.Or(req.GetName(), graph.GetName())
	res, err := l.Log.Propose(ctx, &raftv1.Command{Command: &raftv1.Command_CreateJob{CreateJob: &raftv1.CreateJob{Job: &raftv1.JobRecord{
		Id: strings.ToLower(ulid.Make().String()), RequestId: req.GetRequestId(), Name: name, Graph: graph,
		ArtifactSha256: req.GetArtifactSha256(), Args: req.GetArgs(), Parallelism: parallelism,
		AllowDroppedState: req.GetAllowDroppedState(), From: from, CreatedAtMs: time.Now().UnixMilli(), Lost: lost,
		OperatorParallelism: req.GetOperatorParallelism(), AutoParallelism: req.GetAutoParallelism(),
	}}}})
	if err != nil {
		return nil, mapped(err)
	}
	if res.Err != nil {
		if errors.Is(res.Err, fsm.ErrNameTaken) {
			return nil, nameTaken(res.Job)
		}
		return nil, mapped(res.Err)
	}
	if !fsm.Terminal(res.Job.GetState()) {
		l.Jobs.Add(res.Job)
	}
	s.logger.Info("job submitted", "job", res.Job.GetId(), "name", res.Job.GetName(), "repeated", res.Repeated)
	return &jobv1.SubmitJobResponse{JobId: res.Job.GetId()}, nil
}

// sameSubmit refuses a request id that stands for another job.
func sameSubmit(rec *raftv1.JobRecord, req *jobv1.SubmitJobRequest) error {
	if len(rec.GetRescales()) > 0 || rec.GetRescale() != nil {
		req = proto.CloneOf(req) // it had another parallelism then
		req.Parallelism, req.OperatorParallelism, req.AutoParallelism = rec.GetParallelism(), rec.GetOperatorParallelism(), rec.GetAutoParallelism()
	}
	if rec.GetArtifactSha256() != req.GetArtifactSha256() || !slices.Equal(rec.GetArgs(), req.GetArgs()) ||
		!rec.GetAutoParallelism() && rec.GetParallelism() != req.GetParallelism() || rec.GetAutoParallelism() != req.GetAutoParallelism() ||
		!maps.Equal(rec.GetOperatorParallelism(), req.GetOperatorParallelism()) || req.GetName() != "" && rec.GetName() != req.GetName() {
		return invalid("request id %q was used for job %s (%q), with another binary, name, parallelism or other arguments; choose a new id",
			req.GetRequestId(), rec.GetId(), rec.GetName())
	}
	return nil
}

// checkName refuses names that tables, paths and JOB@CHECKPOINT cannot hold.
func checkName(name string) error {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || r == '@' || r == '/' }
	switch {
	case name == "":
		return invalid("the job has no name; give it one with --name")
	case len(name) > maxNameLength:
		return invalid("the job's name has %d bytes, more than %d; give it another one with --name", len(name), maxNameLength)
	case strings.ContainsFunc(name, bad), strings.TrimSpace(name) != name:
		return invalid("the job's name %q has characters other than printable ones, '@' or '/', or blanks around it; give it another one with --name", name)
	}
	return nil
}

func nameTaken(rec *raftv1.JobRecord) error {
	return fmt.Errorf("%w: %q is job %s; choose another name, or end that one with 'weir stop' or 'weir cancel'", grpcerr.ErrNameTaken, rec.GetName(), rec.GetId())
}

// plan lets a TaskManager run the binary in plan mode, and checks the graph that comes out.
func (s *Services) plan(ctx context.Context, l *Leader, req *jobv1.SubmitJobRequest, parallelism uint32) (*jobv1.Graph, error) {
	if !sha256Pattern.MatchString(req.GetArtifactSha256()) {
		return nil, invalid("the job binary is named by its SHA-256 in lower-case hex, not %q", req.GetArtifactSha256())
	}
	l.Jobs.UseArtifact(req.GetArtifactSha256())
	job := &clusterv1.PlanJob{
		ArtifactSha256: req.GetArtifactSha256(), Args: req.GetArgs(), Parallelism: parallelism, Name: req.GetName(),
		DefaultName: req.GetDefaultName(), OperatorParallelism: req.GetOperatorParallelism(),
	}
	there, err := s.exists(ctx, driver.ArtifactName(l.ClusterID, req.GetArtifactSha256()))
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, fmt.Errorf("%w: upload %s first", grpcerr.ErrArtifactNotFound, req.GetArtifactSha256())
	}
	graph, err := s.planGraph(ctx, l, job)
	if err != nil {
		return nil, err
	}
	return graph, checkGraph(graph, req.GetName())
}

// planGraph is plan for a binary that is known to be there.
func (s *Services) planGraph(ctx context.Context, l *Leader, job *clusterv1.PlanJob) (*jobv1.Graph, error) {
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	result, err := s.planned(ctx, l, job)
	if err != nil {
		return nil, err
	}
	return graphOf(result, job)
}

// PlanGraph has a job planned by one of the TaskManagers.
func PlanGraph(ctx context.Context, r *registry.Registry, job *clusterv1.PlanJob) (*jobv1.Graph, error) {
	result, err := r.Plan(ctx, job)
	if err != nil {
		return nil, err
	}
	return graphOf(result, job)
}

// graphOf returns the graph of a plan, or what is wrong with the job.
func graphOf(result *jobv1.PlanResult, job *clusterv1.PlanJob) (*jobv1.Graph, error) {
	if _, ok := version.Common(result.GetProtocolMin(), result.GetProtocolMax()); !ok {
		return nil, invalid("the job binary speaks protocol %d to %d, this cluster (version %s) speaks %d to %d; build the job with a matching version of the SDK",
			result.GetProtocolMin(), result.GetProtocolMax(), version.Version, version.ProtocolMin, version.ProtocolMax)
	}
	if errs := result.GetErrors(); len(errs) > 0 {
		number := "1 error"
		if len(errs) > 1 {
			number = fmt.Sprintf("%d errors", len(errs))
		}
		return nil, invalid("the job has %s:\n  %s", number, strings.Join(errs, "\n  "))
	}
	return result.GetGraph(), checkOperators(result.GetGraph(), job.GetOperatorParallelism())
}

// planned asks the TaskManagers until one has planned the job. They may just be coming over from another leader, or may have left this
// one, which does not know yet that it leads no more.
func (s *Services) planned(ctx context.Context, l *Leader, job *clusterv1.PlanJob) (*jobv1.PlanResult, error) {
	for waited := time.Duration(0); ; waited += planRetry {
		result, err := l.Registry.Plan(ctx, job)
		if !errors.Is(err, grpcerr.ErrNoTaskManager) {
			return result, err
		}
		if now, lerr := s.leader(ctx); lerr != nil {
			return nil, lerr
		} else if now.Term != l.Term {
			return nil, &grpcerr.NotLeaderError{}
		}
		if waited >= planPatience {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(planRetry):
		}
	}
}

func checkGraph(g *jobv1.Graph, name string) error {
	switch {
	case len(g.GetVertices()) == 0:
		return invalid("the job has no operators")
	}
	if err := checkName(cmp.Or(name, g.GetName())); err != nil {
		return err
	}
	for _, v := range g.GetVertices() {
		if v.GetParallelism() == 0 || v.GetParallelism() > g.GetMaxParallelism() {
			return invalid("vertex %s has parallelism %d, which is not between 1 and the job's maximum parallelism %d",
				v.GetId(), v.GetParallelism(), g.GetMaxParallelism())
		}
	}
	return nil
}

// restorePoint turns the from of a submit into what the first attempt restores: a savepoint's directory or JOB@CHECKPOINT.
func (s *Services) restorePoint(ctx context.Context, l *Leader, from string, g *jobv1.Graph) (*workerv1.RestorePoint, error) {
	if from == "" {
		return nil, nil
	}
	point := &workerv1.RestorePoint{Settled: true, Savepoint: true}
	var md *snapshotv1.CheckpointMetadata
	var err error
	if strings.Contains(from, "://") {
		if dir, base := blob.Split(from); base == "metadata" || base == "" {
			from = dir
		}
		md, point.Metadata, err = driver.ReadMetadata(ctx, s.bucket, s.open, blob.Join(from, "metadata"))
	} else {
		_, cp, ferr := checkpointOf(l.Log.View(), from)
		if ferr != nil {
			return nil, ferr
		}
		point.Savepoint, point.Settled, point.Metadata = false, cp.GetSettled(), cp.GetMetadata()
		md, err = driver.ReadCheckpoint(ctx, s.bucket, s.open, cp)
	}
	switch {
	case errors.Is(err, blob.ErrNotExist) && point.Savepoint:
		return nil, invalid("there is no savepoint at %s", from)
	case errors.Is(err, blob.ErrNotExist):
		return nil, invalid("%s cannot be restored: its file %s is gone from checkpoint storage; restore from another checkpoint or savepoint",
			from, point.GetMetadata().GetName())
	case errors.Is(err, checkpointfile.ErrDamaged), errors.Is(err, checkpointfile.ErrVersion):
		return nil, invalid("%v", err)
	case err != nil:
		return nil, invalid("%s cannot be restored: %v", from, err)
	}
	if point.Savepoint && !md.GetSavepoint() {
		return nil, invalid("%s is a checkpoint's file and no savepoint; name it as JOB@%d", from, md.GetCheckpoint())
	}
	if md.GetMaxParallelism() != g.GetMaxParallelism() {
		return nil, invalid("%s was written with a maximum parallelism of %d, the job has %d; they must be equal, because keys are filed by it",
			from, md.GetMaxParallelism(), g.GetMaxParallelism())
	}
	point.Checkpoint = md.GetCheckpoint()
	return point, nil
}

// checkpointOf finds JOB@CHECKPOINT; without a number, or with "last", it is the last one.
func checkpointOf(v fsm.View, from string) (*raftv1.JobRecord, *raftv1.CompletedCheckpoint, error) {
	job, number, ok := strings.Cut(from, "@")
	if !ok {
		return nil, nil, invalid("%q is neither the URL of a savepoint nor JOB@CHECKPOINT", from)
	}
	rec, err := find(v, job)
	if err != nil {
		return nil, nil, err
	}
	if !fsm.Terminal(rec.GetState()) {
		return nil, nil, invalid("job %s (%s) has not ended; stop it first, or take a savepoint and start from that", rec.GetName(), rec.GetId())
	}
	if number == "" || number == "last" {
		if cp, ok := fsm.LastCheckpoint(rec); ok {
			return rec, cp, nil
		}
		return nil, nil, invalid("job %s (%s) has kept no checkpoint", rec.GetName(), rec.GetId())
	}
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return nil, nil, invalid("%q is no checkpoint number", number)
	}
	var kept []string
	for _, cp := range rec.GetCheckpoints() {
		if cp.GetId() == id {
			return rec, cp, nil
		}
		kept = append(kept, strconv.FormatUint(cp.GetId(), 10))
	}
	if len(kept) == 0 {
		kept = []string{"none"}
	}
	return nil, nil, invalid("job %s (%s) has not kept checkpoint %d; kept: %s", rec.GetName(), rec.GetId(), id, strings.Join(kept, ", "))
}

// find finds a job by id, by the name of a live job, or else by the name of the newest ended one.
func find(v fsm.View, job string) (*raftv1.JobRecord, error) {
	if rec, ok := v.Job(strings.ToLower(job)); ok {
		return rec, nil
	}
	if rec, ok := v.Live(job); ok {
		return rec, nil
	}
	var newest *raftv1.JobRecord
	for _, rec := range v.Jobs() {
		if rec.GetName() == job {
			newest = rec
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("%w: %q; list the jobs with: weir list --all", grpcerr.ErrJobNotFound, job)
	}
	return newest, nil
}
