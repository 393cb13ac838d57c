// Creates a pool and a job, waits for the end of the job, and prints the results of its tasks.
//
// Usage: client [ADDRESS [POOL [COMMAND]]]
package main

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"os"
	"sort"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	mesos "example.org/client/gen/peloton/api/mesos/v1"
	peloton "example.org/client/gen/peloton/api/v0"
	"example.org/client/gen/peloton/api/v0/job"
	"example.org/client/gen/peloton/api/v0/respool"
	"example.org/client/gen/peloton/api/v0/task"
)

const timeout = 30 * time.Second

// CPUs, and megabytes; a pool needs each of the four kinds.
var limits = map[string]float64{"cpu": 1, "memory": 512, "disk": 512, "gpu": 0}

// asTheOriginal calls the services by the names that the original's clients use, with their
// metadata.
func asTheOriginal(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	// These services have no `v0` in their names on the wire, unlike in their protos.
	method = strings.Replace(method, "/peloton.api.v0.", "/peloton.api.", 1)
	service := "peloton-jobmgr"
	if strings.Contains(method, ".respool.") {
		service = "peloton-resmgr"
	}
	pairs := []string{
		"rpc-caller", "example-go", "rpc-service", service, "rpc-encoding", "proto",
	}
	ctx = metadata.AppendToOutgoingContext(ctx, append(pairs, credentials()...)...)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return invoke(ctx, method, request, reply, conn, options...)
}

// credentials say who calls: by name and password, or by the token of a cluster on this machine.
func credentials() []string {
	if name := os.Getenv("PELOTON_USERNAME"); name != "" {
		return []string{"username", name, "password", read(os.Getenv("PELOTON_PASSWORD_FILE"))}
	}
	if file := os.Getenv("PELOTON_TOKEN_FILE"); file != "" {
		return []string{"authorization", "Bearer " + read(file)}
	}
	return nil
}

func read(file string) string {
	data, err := os.ReadFile(file)
	must(err)
	return strings.TrimSpace(string(data))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// findOrCreatePool returns the id of the pool at a path such as /name, below the root.
func findOrCreatePool(
	ctx context.Context, conn *grpc.ClientConn, path string,
) *peloton.ResourcePoolID {
	pools := respool.NewResourceManagerClient(conn)
	lookup := func(of string) *peloton.ResourcePoolID {
		request := &respool.LookupRequest{Path: &respool.ResourcePoolPath{Value: of}}
		answer, err := pools.LookupResourcePoolID(ctx, request)
		must(err)
		return answer.GetId()
	}
	if found := lookup(path); found.GetValue() != "" {
		return found
	}
	config := &respool.ResourcePoolConfig{
		Name:   strings.TrimPrefix(path, "/"),
		Parent: lookup("/"),
		Policy: respool.SchedulingPolicy_PriorityFIFO,
	}
	for kind, limit := range limits {
		config.Resources = append(
			config.Resources, &respool.ResourceConfig{Kind: kind, Limit: limit, Share: 1},
		)
	}
	answer, err := pools.CreateResourcePool(ctx, &respool.CreateRequest{Config: config})
	must(err)
	if answer.GetError() != nil {
		log.Fatalf("the pool %s was refused: %v", path, answer.GetError())
	}
	return answer.GetResult()
}

// createJob returns the id of a new job: three instances of a shell command.
func createJob(
	ctx context.Context, conn *grpc.ClientConn, pool *peloton.ResourcePoolID, command string,
) *peloton.JobID {
	config := &job.JobConfig{
		Name:          "example-go",
		Type:          job.JobType_BATCH,
		InstanceCount: 3,
		RespoolID:     pool,
		DefaultConfig: &task.TaskConfig{
			Resource: &task.ResourceConfig{CpuLimit: 0.1, MemLimitMb: 16, DiskLimitMb: 16},
			// Messages of Mesos are proto2: their fields are pointers.
			Command: &mesos.CommandInfo{Shell: proto.Bool(true), Value: proto.String(command)},
		},
	}
	answer, err := job.NewJobManagerClient(conn).Create(ctx, &job.CreateRequest{Config: config})
	must(err)
	if answer.GetError() != nil {
		log.Fatalf("the job was refused: %v", answer.GetError())
	}
	return answer.GetJobId()
}

// wait returns the state in which a job has ended.
func wait(ctx context.Context, conn *grpc.ClientConn, id *peloton.JobID) job.JobState {
	jobs := job.NewJobManagerClient(conn)
	for {
		answer, err := jobs.Get(ctx, &job.GetRequest{Id: id})
		must(err)
		if answer.GetError() != nil {
			log.Fatalf("the job cannot be read: %v", answer.GetError())
		}
		state := answer.GetJobInfo().GetRuntime().GetState()
		switch state {
		case job.JobState_SUCCEEDED, job.JobState_FAILED, job.JobState_KILLED:
			return state
		}
		time.Sleep(time.Second)
	}
}

// printResults prints state, exit code and address of the log of each task.
func printResults(ctx context.Context, conn *grpc.ClientConn, id *peloton.JobID) {
	tasks := task.NewTaskManagerClient(conn)
	answer, err := tasks.List(ctx, &task.ListRequest{JobId: id})
	must(err)
	found := answer.GetResult().GetValue()
	instances := make([]int, 0, len(found))
	for instance := range found {
		instances = append(instances, int(instance))
	}
	sort.Ints(instances)
	for _, instance := range instances {
		request := &task.BrowseSandboxRequest{JobId: id, InstanceId: uint32(instance)}
		files, err := tasks.BrowseSandbox(ctx, request)
		must(err)
		runtime := found[uint32(instance)].GetRuntime()
		for _, path := range files.GetPaths() {
			if strings.HasSuffix(path, "/stdout") {
				fmt.Printf(
					"task %d %s exit %d http://%s:%s/files/download?path=%s\n",
					instance, runtime.GetState(), runtime.GetTerminationStatus().GetExitCode(),
					files.GetHostname(), files.GetPort(), url.QueryEscape(path),
				)
			}
		}
	}
}

func main() {
	words := []string{"127.0.0.1:5397", "/examples", "date"}
	copy(words, os.Args[1:])
	conn, err := grpc.Dial(
		words[0],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(asTheOriginal),
	)
	must(err)
	defer conn.Close()
	ctx := context.Background()
	id := createJob(ctx, conn, findOrCreatePool(ctx, conn, words[1]), words[2])
	state := wait(ctx, conn, id)
	fmt.Printf("job %s %s\n", id.GetValue(), state)
	printResults(ctx, conn, id)
	if state != job.JobState_SUCCEEDED {
		os.Exit(1)
	}
}
