package client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import mesos.v1.Mesos;
import peloton.api.v0.job.Job;
import peloton.api.v0.job.JobManagerGrpc;
import peloton.api.v0.peloton.Peloton.JobID;
import peloton.api.v0.peloton.Peloton.ResourcePoolID;
import peloton.api.v0.respool.ResourceManagerGrpc;
import peloton.api.v0.respool.Respool;
import peloton.api.v0.task.Task;
import peloton.api.v0.task.TaskManagerGrpc;

/**
 * Creates a pool and a job, waits for the end of the job, and prints the results of its tasks.
 *
 * <p>Usage: java -jar target/client.jar [ADDRESS [POOL [COMMAND]]]
 */
public final class Client {
  private static final int TIMEOUT_S = 30;
  /** CPUs, and megabytes; a pool needs each of the four kinds. */
  private static final Map<String, Double> LIMITS =
      Map.of("cpu", 1.0, "memory", 512.0, "disk", 512.0, "gpu", 0.0);

  /** Calls the services by the names that the original's clients use, with their metadata. */
  private static final class AsTheOriginal implements ClientInterceptor {
    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(
        MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
      // These services have no `v0` in their names on the wire, unlike in their protos.
      String name = method.getFullMethodName().replaceFirst("^peloton\\.api\\.v0\\.", "peloton.api.");
      String service = name.contains(".respool.") ? "peloton-resmgr" : "peloton-jobmgr";
      return new SimpleForwardingClientCall<>(
          next.newCall(
              method.toBuilder().setFullMethodName(name).build(),
              options.withDeadlineAfter(TIMEOUT_S, TimeUnit.SECONDS))) {
        @Override
        public void start(Listener<A> listener, Metadata headers) {
          put(headers, "rpc-caller", "example-java");
          put(headers, "rpc-service", service);
          put(headers, "rpc-encoding", "proto");
          credentials().forEach((key, value) -> put(headers, key, value));
          super.start(listener, headers);
        }
      };
    }

    private static void put(Metadata headers, String key, String value) {
      headers.put(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER), value);
    }
  }

  /** Who calls: by name and password, or by the token of a cluster on this machine. */
  private static Map<String, String> credentials() {
    Map<String, String> said = new LinkedHashMap<>();
    if (System.getenv("PELOTON_USERNAME") != null) {
      said.put("username", System.getenv("PELOTON_USERNAME"));
      said.put("password", read("PELOTON_PASSWORD_FILE"));
    } else if (System.getenv("PELOTON_TOKEN_FILE") != null) {
      said.put("authorization", "Bearer " + read("PELOTON_TOKEN_FILE"));
    }
    return said;
  }

  private static String read(String variable) {
    String file = System.getenv(variable);
    if (file == null) {
      throw new IllegalStateException(variable + " is not set");
    }
    try {
      return Files.readString(Path.of(file)).strip();
    } catch (IOException error) {
      throw new IllegalStateException("cannot read " + file, error);
    }
  }

  /** The id of the pool at a path such as /name, below the root. */
  private static ResourcePoolID findOrCreatePool(Channel channel, String path) {
    var pools = ResourceManagerGrpc.newBlockingStub(channel);
    ResourcePoolID found = lookup(pools, path);
    if (!found.getValue().isEmpty()) {
      return found;
    }
    var config =
        Respool.ResourcePoolConfig.newBuilder()
            .setName(path.substring(1))
            .setParent(lookup(pools, "/"))
            .setPolicy(Respool.SchedulingPolicy.PriorityFIFO);
    LIMITS.forEach(
        (kind, limit) ->
            config.addResources(
                Respool.ResourceConfig.newBuilder().setKind(kind).setLimit(limit).setShare(1)));
    var answer =
        pools.createResourcePool(Respool.CreateRequest.newBuilder().setConfig(config).build());
    if (answer.hasError()) {
      throw new IllegalStateException("the pool was refused: " + answer.getError());
    }
    return answer.getResult();
  }

  private static ResourcePoolID lookup(
      ResourceManagerGrpc.ResourceManagerBlockingStub pools, String path) {
    var wanted = Respool.ResourcePoolPath.newBuilder().setValue(path);
    return pools
        .lookupResourcePoolID(Respool.LookupRequest.newBuilder().setPath(wanted).build())
        .getId();
  }

  /** The id of a new job: three instances of a shell command. */
  private static JobID createJob(Channel channel, ResourcePoolID pool, String command) {
    var task =
        Task.TaskConfig.newBuilder()
            .setResource(
                Task.ResourceConfig.newBuilder()
                    .setCpuLimit(0.1).setMemLimitMb(16).setDiskLimitMb(16))
            .setCommand(Mesos.CommandInfo.newBuilder().setShell(true).setValue(command));
    var config =
        Job.JobConfig.newBuilder()
            .setName("example-java")
            .setType(Job.JobType.BATCH)
            .setInstanceCount(3)
            .setRespoolID(pool)
            .setDefaultConfig(task);
    var answer =
        JobManagerGrpc.newBlockingStub(channel)
            .create(Job.CreateRequest.newBuilder().setConfig(config).build());
    if (answer.hasError()) {
      throw new IllegalStateException("the job was refused: " + answer.getError());
    }
    return answer.getJobId();
  }

  /** The state in which a job has ended. */
  private static Job.JobState waitFor(Channel channel, JobID job) throws InterruptedException {
    var jobs = JobManagerGrpc.newBlockingStub(channel);
    while (true) {
      var answer = jobs.get(Job.GetRequest.newBuilder().setId(job).build());
      if (answer.hasError()) {
        throw new IllegalStateException("the job cannot be read: " + answer.getError());
      }
      var state = answer.getJobInfo().getRuntime().getState();
      switch (state) {
        case SUCCEEDED, FAILED, KILLED -> {
          return state;
        }
        default -> Thread.sleep(1000);
      }
    }
  }

  /** Prints state, exit code and address of the log of each task. */
  private static void printResults(Channel channel, JobID job) {
    var tasks = TaskManagerGrpc.newBlockingStub(channel);
    var listed = tasks.list(Task.ListRequest.newBuilder().setJobId(job).build());
    new TreeMap<>(listed.getResult().getValueMap())
        .forEach(
            (instance, info) -> {
              var runtime = info.getRuntime();
              var files =
                  tasks.browseSandbox(
                      Task.BrowseSandboxRequest.newBuilder()
                          .setJobId(job).setInstanceId(instance).build());
              for (String path : files.getPathsList()) {
                if (path.endsWith("/stdout")) {
                  System.out.printf(
                      "task %d %s exit %d http://%s:%s/files/download?path=%s%n",
                      instance, runtime.getState(), runtime.getTerminationStatus().getExitCode(),
                      files.getHostname(), files.getPort(),
                      URLEncoder.encode(path, StandardCharsets.UTF_8));
                }
              }
            });
  }

  public static void main(String[] words) throws InterruptedException {
    String address = words.length > 0 ? words[0] : "127.0.0.1:5397";
    String pool = words.length > 1 ? words[1] : "/examples";
    String command = words.length > 2 ? words[2] : "date";
    ManagedChannel channel =
        Grpc.newChannelBuilder(address, InsecureChannelCredentials.create())
            .intercept(new AsTheOriginal())
            .build();
    Job.JobState state;
    try {
      JobID job = createJob(channel, findOrCreatePool(channel, pool), command);
      state = waitFor(channel, job);
      System.out.printf("job %s %s%n", job.getValue(), state);
      printResults(channel, job);
    } finally {
      channel.shutdownNow();
    }
    System.exit(state == Job.JobState.SUCCEEDED ? 0 : 1);
  }
}
