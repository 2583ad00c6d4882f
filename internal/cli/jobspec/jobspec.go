// Package jobspec writes what a user asks for in the form of the API, and reads the
// answer.
//
// It decides, from the options, the script and where the command runs, what stands
// in the job's specification, with the paths made whole. It writes the messages of
// api/greylag/v1/job.proto by hand, because a command that links the library for
// them takes twice as long to start; its test holds it against the description of
// the messages. It never decides what is allowed, and never reads or sends anything.
package jobspec

import (
	"cmp"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/pkg/cluster"
)

// Place is where a command runs.
type Place struct {
	Dir     string // working directory
	Host    string // for people only; "" when it is not known
	Environ []string
}

// NotText is an error about a working directory or an argument that is not UTF-8.
type NotText struct{ Text string }

// Error names it.
func (e *NotText) Error() string { return fmt.Sprintf("%q is not UTF-8", e.Text) }

// Encode returns the greylag.v1.JobSpec of a job, and the names of the variables
// that cannot be sent because they are not UTF-8: the job does without them. The
// error is a *NotText. O(script and environment).
func Encode(o jobscript.Options, script jobscript.Script, args []string, at Place) (spec []byte, left []string, err error) {
	command := CommandLine(script.Command(at.Dir))
	if o.WorkDir != "" {
		at.Dir = filepath.Clean(below(at.Dir, o.WorkDir))
	}
	for _, text := range append([]string{at.Dir}, args...) {
		if !utf8.ValidString(text) {
			return nil, nil, &NotText{text}
		}
	}
	environment, left := sendable(o.Export.Environment(at.Environ))
	if o.Name == "" {
		o.Name = script.JobName()
	}
	if o.Output == "" {
		o.Output = defaultOutput(o)
	}
	m := make(message, 0, len(script.Text)+4096)
	m.text(1, o.Name)
	m.text(2, o.Account)
	m.text(3, o.Partition)
	m.text(4, o.QOS)
	m.child(5, request(o.Request))
	if o.TimeLimit != nil {
		m.duration(6, *o.TimeLimit)
	}
	if len(script.Text) > 0 {
		m.child(7, script.Text)
	}
	m.texts(8, environment)
	m.texts(9, args)
	m.files(o, at.Dir)
	m.text(15, imageBelow(at.Dir, o.Image))
	m.flag(16, o.NoRequeue)
	m.number(17, int64(o.Nice))
	m.moment(18, o.Begin)
	m.moment(19, o.Deadline)
	m.rest(o, at.Host)
	m.text(31, command)
	m.mounts(o, at.Dir)
	m.burst(o)
	m.restarts(o, at.Dir)
	return m, left, nil
}

// files is where a job works, reads and writes.
func (m *message) files(o jobscript.Options, dir string) {
	m.text(10, cmp.Or(o.TaskDir, dir))
	if o.Input != "" {
		m.text(11, below(dir, o.Input))
	}
	m.text(12, below(dir, o.Output))
	if o.Error != "" {
		m.text(13, below(dir, o.Error))
	}
	m.flag(14, o.Append)
}

// rest is what has the higher numbers.
func (m *message) rest(o jobscript.Options, host string) {
	for _, d := range o.Depends {
		var c message
		c.number(1, int64(d.Kind))
		if d.Kind != cluster.Singleton {
			c.text(2, d.Job.String())
			c.number(3, int64(d.Delay/time.Minute))
		}
		c.flag(4, d.Any)
		m.child(20, c)
	}
	m.text(21, o.Array)
	m.text(22, o.Comment)
	m.text(23, host)
	m.flag(24, o.Hold)
	m.number(25, int64(o.Signal.Number))
	if o.Signal.Number != 0 {
		m.duration(26, o.Signal.Before)
	}
	m.flag(27, o.Signal.BatchOnly)
	m.flag(28, o.EveryNode)
	m.texts(29, o.Others)
	m.text(30, o.Reservation)
	m.text(32, o.WCKey)
	for _, t := range o.MailTypes.Each() {
		m.number(33, int64(bits.TrailingZeros16(uint16(t)))+1)
	}
	m.text(34, o.MailUser)
	m.texts(35, o.Secrets)
}

// mounts encodes the bind mounts; a relative source is resolved in dir.
func (m *message) mounts(o jobscript.Options, dir string) {
	for _, x := range o.Mounts {
		var c message
		c.text(1, below(dir, x.Source))
		c.text(2, x.Target)
		c.flag(3, x.ReadOnly)
		m.child(36, c)
	}
}

// burst encodes what the job says about leased nodes, and what is copied before and after its script.
func (m *message) burst(o jobscript.Options) {
	var c message
	c.number(1, int64(o.Burst.Mode))
	c.number(2, o.Burst.MaxCost)
	c.texts(3, o.Burst.Regions)
	if o.Burst.Market != cluster.AnyMarket {
		c.number(4, int64(o.Burst.Market)+1)
	}
	if len(c) > 0 {
		m.child(43, c)
	}
	m.staging(44, o.StageIn)
	m.staging(45, o.StageOut)
}

func (m *message) staging(field uint64, list []cluster.Staging) {
	for _, x := range list {
		var c message
		c.text(1, x.URL)
		c.text(2, x.Path)
		m.child(field, c)
	}
}

// restarts encodes what happens after a failure.
func (m *message) restarts(o jobscript.Options, dir string) {
	switch {
	case cluster.InS3(o.Checkpoint):
		m.text(37, o.Checkpoint)
	case o.Checkpoint != "":
		m.text(37, filepath.Clean(below(dir, o.Checkpoint)))
	}
	m.flag(38, o.FromScratch)
	if o.CheckpointSignal.Number != 0 {
		var c message
		c.number(1, int64(o.CheckpointSignal.Number))
		c.duration(2, o.CheckpointSignal.Before)
		c.flag(3, o.CheckpointSignal.BatchOnly)
		if o.CheckpointEvery > 0 {
			c.duration(4, o.CheckpointEvery)
		}
		m.child(40, c)
	}
	m.flag(41, o.RequeueAtLimit)
	if o.Elastic.On() {
		var e message
		e.number(1, int64(o.Elastic.Step))
		e.number(2, int64(o.Elastic.Signal))
		e.flag(3, o.Elastic.BatchOnly)
		m.child(42, e)
	}
	if o.Retry == nil {
		return
	}
	var c message
	c.number(1, int64(o.Retry.Limit))
	c.flag(2, o.Retry.AnyExit)
	for _, n := range o.Retry.ExitStatuses {
		c.number(3, int64(n))
	}
	c.flag(4, o.Retry.OutOfMemory)
	m.child(39, c)
}

// request is a greylag.v1.Request.
func request(q cluster.Request) message {
	var m message
	m.number(1, int64(q.Nodes))
	m.number(2, int64(q.GPUsPerNode))
	m.number(3, int64(q.GPUs))
	m.texts(4, q.GPUTypes)
	m.number(5, int64(q.TasksPerNode))
	m.number(6, int64(q.CPUsPerTask))
	m.number(7, int64(q.MemPerNode))
	m.number(8, int64(q.MemPerCPU))
	m.number(9, int64(q.MemPerGPU))
	m.texts(10, q.Features)
	m.texts(11, q.NodeList)
	m.texts(12, q.Exclude)
	m.flag(13, q.Exclusive)
	m.number(14, int64(q.GPUMemory))
	if q.Connect != cluster.ConnectAny {
		m.number(15, int64(q.Connect)+1)
	}
	m.number(16, int64(q.Switches))
	switch {
	case !q.HasLocality(), q.SwitchWait == cluster.SwitchDefault:
	case q.SwitchWait < 0:
		m.duration(17, -time.Second)
	default:
		m.duration(17, q.SwitchWait)
	}
	for _, l := range q.Licences {
		var c message
		c.text(1, l.Name)
		c.number(2, int64(l.Count))
		m.child(18, c)
	}
	m.number(19, q.MaxPrice)
	m.texts(20, q.Regions)
	m.number(21, int64(q.MemFrom))
	m.number(22, int64(q.MaxNodes))
	m.number(23, int64(q.Tasks))
	for _, g := range q.Gres {
		var c message
		c.text(1, g.Name)
		c.text(2, g.Type)
		c.number(3, g.Count)
		m.child(24, c)
	}
	m.number(50, int64(q.Share.Jobs))
	m.flag(51, q.Share.MPS)
	return m
}

// sendable is the part of an environment that is UTF-8, and the names of the rest.
func sendable(environment []string) (sent, left []string) {
	sent = slices.DeleteFunc(environment, func(pair string) bool {
		if utf8.ValidString(pair) {
			return false
		}
		name, _, _ := strings.Cut(pair, "=")
		left = append(left, name)
		return true
	})
	return sent, left
}

// maxCommand is how many bytes of a command a job carries.
const maxCommand = 1024

// CommandLine returns a command on one line, cut to maxCommand bytes.
func CommandLine(command string) string {
	const cut = "..."
	command = strings.Map(func(r rune) rune {
		if cluster.UnsafeToDisplay(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(command, "?"))
	if len(command) > maxCommand {
		command = strings.ToValidUTF8(command[:maxCommand-len(cut)], "") + cut
	}
	return command
}

func defaultOutput(o jobscript.Options) string {
	name := "greylag-%j"
	if o.Array != "" {
		name = "greylag-%A_%a"
	}
	if o.EveryNode {
		name += "-%n"
	}
	return name + ".out"
}

// below is path seen from dir. It is not cleaned: a pattern in it may stand for
// anything.
func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return strings.TrimSuffix(dir, "/") + "/" + path
}

// imageBelow is an image whose path, if it is a path that says so, counts from the job's folder, as
// those of its files do.
func imageBelow(dir, reference string) string {
	for _, scheme := range []string{"oci-archive:", "oci:"} {
		if path, ok := strings.CutPrefix(reference, scheme); ok && path != "" {
			return scheme + filepath.Clean(below(dir, path))
		}
	}
	if strings.HasPrefix(reference, "./") || strings.HasPrefix(reference, "../") {
		return filepath.Clean(below(dir, reference))
	}
	return reference
}
