package peers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-stream/weir/internal/loopback"
)

//go:embed flink/pom.xml
var flinkPOM []byte

//go:embed flink/FlinkJob.java
var flinkJob []byte

// Sizes of a TaskManager in MiB. Its heap is the task's and the framework's; RocksDB has the managed memory.
const (
	flinkTaskHeap      = 1664
	flinkFrameworkHeap = 128
	flinkNetwork       = 128
	flinkManaged       = 512
	flinkDirect        = flinkNetwork + 128 // and the framework's off-heap memory
	flinkMetaspace     = 256
)

func flink(ctx context.Context, dir, name, backend string) (*Engine, error) {
	s, err := load(ctx, dir, "flink", flinkPOM, "FlinkJob.java", flinkJob)
	if err != nil {
		return nil, err
	}
	workloads := []string{"window-count", "running-count"}
	if backend == "hashmap" {
		workloads = append(workloads, "passthrough", "json-projection") // without keyed state, the backend makes no difference
	}
	return &Engine{
		Name: name, Version: "Apache Flink " + version(flinkPOM, "flink-streaming-java"), software: s,
		workloads: workloads,
		start: func(_ context.Context, s *software, j Job) (*Run, error) {
			return startFlink(s, j, backend)
		},
	}, nil
}

// startFlink starts a standalone cluster that belongs to the job: a JobManager, which runs the job's main function, and a TaskManager
// with a slot per partition. A failure ends the JobManager.
func startFlink(s *software, j Job, backend string) (*Run, error) {
	ports, err := loopback.FreePorts(3)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(j.Dir, "conf")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(conf, "config.yaml"), []byte(flinkConfig(j, backend, ports)), 0o644); err != nil {
		return nil, err
	}
	r := &Run{dir: j.Dir}
	jobManager := slices.Concat([]string{"-Xms1g", "-Xmx1g", "-XX:MaxMetaspaceSize=256m"}, flinkOpens(), []string{
		"org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint", "--configDir", conf,
		"--job-classname", "weir.bench.FlinkJob",
		j.Workload, j.Broker.Addr(), j.In, j.Out, strconv.FormatInt(j.Interval.Milliseconds(), 10),
	})
	if err := r.launch(s, "the JobManager of Flink", jobManager...); err != nil {
		return nil, err
	}
	heap := fmt.Sprintf("%dm", flinkTaskHeap+flinkFrameworkHeap)
	taskManager := slices.Concat([]string{
		"-Xms" + heap, "-Xmx" + heap, fmt.Sprintf("-XX:MaxMetaspaceSize=%dm", flinkMetaspace),
		fmt.Sprintf("-XX:MaxDirectMemorySize=%dm", flinkDirect),
	}, flinkOpens(), []string{"org.apache.flink.runtime.taskexecutor.TaskManagerRunner", "--configDir", conf})
	if err := r.launch(s, "the TaskManager of Flink", taskManager...); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

func flinkConfig(j Job, backend string, ports []int) string {
	dir := filepath.ToSlash(j.Dir)
	lines := []string{
		"jobmanager.rpc.address: 127.0.0.1",
		fmt.Sprintf("jobmanager.rpc.port: %d", ports[0]),
		"jobmanager.bind-host: 127.0.0.1",
		"rest.address: 127.0.0.1",
		"rest.bind-address: 127.0.0.1",
		fmt.Sprintf("rest.port: %d", ports[1]),
		fmt.Sprintf("blob.server.port: %d", ports[2]),
		"taskmanager.host: 127.0.0.1",
		"taskmanager.bind-host: 127.0.0.1",
		fmt.Sprintf("taskmanager.numberOfTaskSlots: %d", j.Partitions),
		fmt.Sprintf("taskmanager.cpu.cores: %d", j.Partitions),
		fmt.Sprintf("taskmanager.memory.framework.heap.size: %dm", flinkFrameworkHeap),
		fmt.Sprintf("taskmanager.memory.task.heap.size: %dm", flinkTaskHeap),
		fmt.Sprintf("taskmanager.memory.framework.off-heap.size: %dm", flinkDirect-flinkNetwork),
		"taskmanager.memory.task.off-heap.size: 0m",
		fmt.Sprintf("taskmanager.memory.network.min: %dm", flinkNetwork),
		fmt.Sprintf("taskmanager.memory.network.max: %dm", flinkNetwork),
		fmt.Sprintf("taskmanager.memory.managed.size: %dm", flinkManaged),
		fmt.Sprintf("taskmanager.memory.jvm-metaspace.size: %dm", flinkMetaspace),
		"taskmanager.memory.jvm-overhead.min: 256m",
		"taskmanager.memory.jvm-overhead.max: 256m",
		fmt.Sprintf("parallelism.default: %d", j.Partitions),
		"restart-strategy.type: none",
		"state.backend.type: " + backend,
		"execution.checkpointing.incremental: true",
		"execution.checkpointing.storage: filesystem",
		"execution.checkpointing.dir: file://" + dir + "/checkpoints",
		"io.tmp.dirs: " + dir,
	}
	return strings.Join(lines, "\n") + "\n"
}

// flinkOpens are the packages of the JDK that Flink's own configuration opens.
func flinkOpens() []string {
	var out []string
	for _, p := range []string{
		"java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text", "java.time", "java.util",
		"java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks",
	} {
		out = append(out, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	return out
}
