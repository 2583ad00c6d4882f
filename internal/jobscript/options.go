package jobscript

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Options is all that was asked for. Zero values were not asked for.
type Options struct {
	Name      string
	Account   string
	Partition string
	Others    []string // further partitions
	QOS       string
	Comment   string
	WCKey     string
	MailTypes cluster.MailTypes
	MailUser  string
	Secrets   []string // names
	Request   cluster.Request
	TimeLimit *time.Duration // nil: the partition's default; 0: no limit
	Array     string         // as written; the cluster reads it
	Depends   []cluster.Dependency
	Begin     time.Time
	Deadline  time.Time
	Hold      bool
	NoRequeue bool
	Nice      int32
	Signal    cluster.WarnSignal
	EveryNode bool
	Image     string
	Mounts    []cluster.Mount // a source may be relative
	Retry     *cluster.Retry  // nil: that of the site
	WorkDir   string
	Input     string
	Output    string
	Error     string
	Append    bool
	Export    Export
	env       []string // of --env: NAME or NAME=VALUE, of all places

	Reservation string
	Checkpoint  string // directory of checkpoints; may be relative
	FromScratch bool   // start from the beginning when all checkpoints are damaged

	CheckpointSignal cluster.WarnSignal
	Elastic          cluster.Elastic
	CheckpointEvery  time.Duration
	RequeueAtLimit   bool

	Burst             cluster.Burst
	StageIn, StageOut []cluster.Staging

	// Only sbatch sets these.
	Clusters  string // names of clusters: one must be this one
	LoginEnv  bool   // add the variables of a login shell
	TaskDir   string // directory of the script in its image; WorkDir only completes paths
	pyxisEnvs []string

	Wrap     string // a shell command instead of a script
	Wait     bool
	Parsable bool
	JSON     bool
	Quiet    bool
	Quote    bool // print what the job would cost, and submit nothing
	TestOnly bool // print when and where the job would start, and submit nothing

	tasks       int32 // in all, over all nodes
	gpusPerTask int32
	gresGPUs    bool // --gres requests the GPUs
	cpusPerGPU  int32
	tasksPerGPU int32
	retries     *int32         // of --retry
	retryOn     *cluster.Retry // of --retry-on, without its limit
	memZero     bool           // --mem=0 was written: all memory of each node
	tmp         int64          // MiB of scratch space on each node

	connectWait time.Duration // of --connect
	switchWait  time.Duration // of --switches
}

// place is where options were found, weakest first.
type place int

const (
	inSBATCH place = iota
	inGSUB
	inSlurmEnvironment // SBATCH_* variables
	inEnvironment      // GSUB_* variables
	onCommandLine
)

// family groups options: those of a stronger place replace all of a weaker one.
type family int

const (
	noFamily family = iota
	gpuFamily
	memoryFamily
)

// forget drops what was asked for by the options of a family.
func (o *Options) forget(f family) {
	r := &o.Request
	switch f {
	case gpuFamily:
		r.GPUs, r.GPUsPerNode, r.GPUTypes, o.gpusPerTask, o.gresGPUs = 0, 0, nil, 0, false
	case memoryFamily:
		r.MemPerNode, r.MemPerCPU, r.MemPerGPU, o.memZero = 0, 0, 0, false
	}
}
