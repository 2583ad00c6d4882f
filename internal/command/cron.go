package command

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// CronEntry is a recurring job of a user. The leader submits the job at the times of the schedule. The
// state parses neither the schedule nor the job: the leader checks both.
type CronEntry struct {
	Owner    cluster.Identity
	Name     string
	Schedule string
	Zone     string // time zone of the schedule; "" is UTC
	Queue    bool   // submit one job that waits for the end of the last; otherwise submit none until then
	Held     bool
	Job      []byte // encoded greylag.v1.JobSpec
	// Version is the log index of the SetCron that made the entry.
	Version uint64
	// Checked is the time up to which the schedule has been processed.
	Checked cluster.Instant
	LastJob cluster.JobID   // newest job; 0: none
	Last    cluster.Instant // of the newest attempt to submit a job; 0: none
	Error   string          // why it submitted no job; "" if it did
}

// SetCron stores a recurring job of its actor. It uses Name, Schedule, Zone, Queue and Job of Entry.
type SetCron struct {
	Request RequestID
	Actor   Actor
	Entry   CronEntry
	Replace bool // an entry of that name may exist; its last job is kept
}

// CronAction is what UpdateCron does.
type CronAction uint8

// The actions.
const (
	HoldCron CronAction = iota + 1
	ReleaseCron
	RemoveCron
)

// UpdateCron changes recurring jobs of a user: all of them or none.
type UpdateCron struct {
	Request RequestID
	Actor   Actor
	User    string
	Names   []string
	Action  CronAction
}

// RecordCron records an attempt to submit a recurring job. It changes nothing if the entry was replaced
// or removed meanwhile.
type RecordCron struct {
	User    string
	Name    string
	Version uint64          // of the entry
	Checked cluster.Instant // 0: a user requested the job, outside the schedule
	Job     cluster.JobID   // 0: no job was submitted
	Error   string          // why no job was submitted
}

func (*SetCron) kind() kind    { return kindSetCron }
func (*UpdateCron) kind() kind { return kindUpdateCron }
func (*RecordCron) kind() kind { return kindRecordCron }

// CronFields are those of a recurring job.
func CronFields(c *codec.Coder, x *CronEntry) {
	identityFields(c, &x.Owner)
	codec.String(c, &x.Name)
	codec.String(c, &x.Schedule)
	codec.String(c, &x.Zone)
	codec.Bool(c, &x.Queue)
	codec.Bool(c, &x.Held)
	codec.Bytes(c, &x.Job)
	codec.Uint(c, &x.Version)
	codec.Int(c, &x.Checked)
	codec.Uint(c, &x.LastJob)
	codec.Int(c, &x.Last)
	codec.String(c, &x.Error)
}

func setCronFields(c *codec.Coder, x *SetCron) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Record(c, &x.Entry, CronFields)
	codec.Bool(c, &x.Replace)
}

func updateCronFields(c *codec.Coder, x *UpdateCron) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.String(c, &x.User)
	codec.List(c, &x.Names, codec.String)
	codec.Uint(c, &x.Action)
}

func recordCronFields(c *codec.Coder, x *RecordCron) {
	codec.String(c, &x.User)
	codec.String(c, &x.Name)
	codec.Uint(c, &x.Version)
	codec.Int(c, &x.Checked)
	codec.Uint(c, &x.Job)
	codec.String(c, &x.Error)
}
