package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// echo is how long an equal event is the same one: NVML and the kernel log report each error.
	echo = time.Minute
	// relinkWindow is the interval in which a second error of NVLink drains the node.
	relinkWindow = 24 * time.Hour
	// unknownWindow and unknownLimit say when unknown errors make a GPU degraded.
	unknownWindow, unknownLimit = time.Hour, 3
	// suspectWindow and suspectLimit say programs of how many users make it degraded.
	suspectWindow, suspectLimit = 7 * 24 * time.Hour, 3
	// degradedFor is how long a GPU stays degraded after unknown errors or one of NVLink.
	degradedFor = 24 * time.Hour
	// maxRecorded limits the events of a GPU that are kept.
	maxRecorded = 64
)

// Holder is the job that has a GPU; the zero value for none.
type Holder struct {
	Job  cluster.JobID
	Ref  string // the job's number as users read it
	User uint32
}

// Outcome is the consequence of an event for the job on the GPU.
type Outcome struct {
	Notice string // a sentence for the job; "" for none
	Blame  string // if the task fails soon, the GPU failed it; "" for none
	Doom   bool   // the task is ended because of Blame
}

// GPUs is the health of a node's GPUs. It is not safe for concurrent use.
type GPUs struct {
	saved savedGPUs
}

// savedGPUs is what a restart of the daemon preserves.
type savedGPUs struct {
	Devices map[string]*device `json:"devices"` // by UUID
}

// device is the health of one GPU since the boot of its node.
type device struct {
	Name     string       `json:"name"` // with index and serial number
	Events   []recorded   `json:"events,omitempty"`
	Mark     mark         `json:"mark"`     // set by the greatest event
	Verdict  gpu.Recovery `json:"verdict"`  // the driver's last one
	Degraded []degraded   `json:"degraded"` // reasons, oldest first
	LinkBad  string       `json:"link_bad,omitempty"`

	// Of the last inventory.
	Lost    string `json:"lost,omitempty"`
	Pending bool   `json:"pending,omitempty"`
	Slow    string `json:"slow,omitempty"`
	Joined  bool   `json:"joined,omitempty"`
	Links   int    `json:"links,omitempty"` // the most that were active

	heat []heat
}

// heat is how long a GPU was throttled by then, since the driver was loaded.
type heat struct {
	at      time.Time
	seconds float64
}

// heatWindow is the interval in which a GPU that is throttled more than half of the time is hot.
const heatWindow = 5 * time.Minute

// Throttled takes the time that a GPU was throttled for its temperature, or by a brake of its power.
func (g *GPUs) Throttled(now time.Time, uuid string, seconds float64) {
	d := g.of(uuid)
	d.heat = append(d.heat, heat{now, seconds})
	for len(d.heat) > 2 && now.Sub(d.heat[1].at) >= heatWindow {
		d.heat = d.heat[1:]
	}
}

// hot reports whether the GPU was throttled more than half of heatWindow.
func (d *device) hot() bool {
	if len(d.heat) < 2 {
		return false
	}
	first, last := d.heat[0], d.heat[len(d.heat)-1]
	span := last.at.Sub(first.at)
	return span >= heatWindow && last.seconds-first.seconds > span.Seconds()/2
}

// recorded is an event.
type recorded struct {
	XID  int        `json:"xid"`
	At   time.Time  `json:"at"`
	User *uint32    `json:"user,omitempty"`
	Kind gpu.Action `json:"kind"`
}

// mark is why a GPU takes no new jobs.
type mark struct {
	Action gpu.Action `json:"action,omitempty"`
	Why    string     `json:"why,omitempty"`
}

// degraded is a reason to avoid a GPU, which ends by itself.
type degraded struct {
	Until time.Time `json:"until"`
	Why   string    `json:"why"`
}

// NewGPUs returns healthy GPUs.
func NewGPUs() *GPUs { return &GPUs{savedGPUs{Devices: map[string]*device{}}} }

func (g *GPUs) of(uuid string) *device {
	d := g.saved.Devices[uuid]
	if d == nil {
		d = &device{Name: "GPU " + uuid}
		g.saved.Devices[uuid] = d
	}
	return d
}

// Handle takes an event of a GPU with its holder.
func (g *GPUs) Handle(now time.Time, uuid string, e gpu.Event, h Holder) Outcome {
	d := g.of(uuid)
	if e.Action == gpu.Verdict {
		if e.Judged {
			d.applyVerdict(e.Recovery)
		}
		return d.outcome(e)
	}
	shadow := e.Action == gpu.Shadow && d.had(now, func(r *recorded) bool { return r.Kind != gpu.Shadow })
	repeated := d.had(now, func(r *recorded) bool { return r.XID == e.XID && r.Kind == e.Action })
	if shadow || repeated {
		return Outcome{}
	}
	d.record(now, e, h)
	switch e.Action {
	case gpu.Unknown:
		if d.count(now, unknownWindow, gpu.Unknown) >= unknownLimit {
			d.degrade(now.Add(degradedFor), "errors that this version does not know: "+e.Message)
		}
	case gpu.Suspect:
		if d.users(now) >= suspectLimit {
			d.degrade(now.Add(suspectWindow), fmt.Sprintf("%s, of %d users within 7 days: GPU suspected", e.Message, suspectLimit))
		}
	case gpu.Link:
		if d.count(now, relinkWindow, gpu.Link) > 1 {
			d.LinkBad = fmt.Sprintf("%s: %s, for the second time in 24 hours", d.Name, words(e))
		}
		d.degrade(now.Add(degradedFor), words(e))
	case gpu.Contained, gpu.Reset, gpu.Drain, gpu.Reboot:
		d.setMark(e.Action, words(e))
	}
	return d.outcome(e)
}

// outcome returns what an event means for the job on the GPU.
func (d *device) outcome(e gpu.Event) Outcome {
	text := d.Name + ": " + words(e)
	switch e.Action {
	case gpu.User, gpu.Suspect, gpu.Shadow, gpu.Link:
		return Outcome{Notice: text}
	case gpu.Contained:
		return Outcome{Notice: text, Blame: text}
	case gpu.Reset, gpu.Reboot:
		return Outcome{Notice: text, Blame: text, Doom: true}
	case gpu.Verdict:
		if e.Judged && e.Recovery != 0 {
			return Outcome{Blame: text}
		}
	}
	return Outcome{}
}

// words returns the message of an event with its number.
func words(e gpu.Event) string {
	if e.XID == 0 || e.Action == gpu.Unknown {
		return e.Message
	}
	return fmt.Sprintf("%s (XID %d)", e.Message, e.XID)
}

func (d *device) setMark(action gpu.Action, why string) {
	if action > d.Mark.Action {
		d.Mark = mark{action, why}
	}
}

// applyVerdict applies the driver's verdict. 0 after another one clears all marks: the driver has recovered.
func (d *device) applyVerdict(r gpu.Recovery) {
	before := d.Verdict
	d.Verdict = r
	why := "the driver asks for: " + r.String()
	switch r {
	case 0:
		if before != 0 {
			d.Mark, d.Degraded, d.LinkBad = mark{}, nil, ""
		}
	case gpu.RecoverReboot, gpu.RecoverSystem:
		d.setMark(gpu.Reboot, why)
	case gpu.RecoverPeers, gpu.RecoverIMEX, gpu.RecoverBus:
		d.setMark(gpu.Drain, why)
	default:
		d.setMark(gpu.Contained, why)
	}
}

func (d *device) record(now time.Time, e gpu.Event, h Holder) {
	r := recorded{XID: e.XID, At: now, Kind: e.Action}
	if h.Job != 0 {
		r.User = &h.User
	}
	d.Events = slices.DeleteFunc(append(d.Events, r), func(r recorded) bool { return now.Sub(r.At) > suspectWindow })
	d.Events = d.Events[max(0, len(d.Events)-maxRecorded):]
}

// had reports whether there was such an event within echo.
func (d *device) had(now time.Time, is func(*recorded) bool) bool {
	return slices.ContainsFunc(d.Events, func(r recorded) bool { return now.Sub(r.At) < echo && is(&r) })
}

func (d *device) count(now time.Time, window time.Duration, kind gpu.Action) (n int) {
	for _, r := range d.Events {
		if r.Kind == kind && now.Sub(r.At) < window {
			n++
		}
	}
	return n
}

// users counts the users whose programs had suspicious errors.
func (d *device) users(now time.Time) int {
	seen := map[uint32]bool{}
	for _, r := range d.Events {
		if r.Kind == gpu.Suspect && r.User != nil && now.Sub(r.At) < suspectWindow {
			seen[*r.User] = true
		}
	}
	return len(seen)
}

func (d *device) degrade(until time.Time, why string) {
	d.Degraded = slices.DeleteFunc(d.Degraded, func(x degraded) bool { return x.Why == why })
	d.Degraded = append(d.Degraded, degraded{until, why})
	d.Degraded = d.Degraded[max(0, len(d.Degraded)-maxRecorded):]
}

// Retain forgets devices that are not listed, after GPUs were divided into other MIG instances.
func (g *GPUs) Retain(devices []gpu.Device) {
	maps.DeleteFunc(g.saved.Devices, func(uuid string, _ *device) bool {
		return !slices.ContainsFunc(devices, func(d gpu.Device) bool { return d.UUID == uuid })
	})
}

// Inspect takes an inventory. It returns the outcomes for the jobs on GPUs that are newly lost, by UUID.
func (g *GPUs) Inspect(devices []gpu.Device) map[string]Outcome {
	lost := map[string]Outcome{}
	listed := map[string]bool{}
	for i := range devices {
		x := &devices[i]
		listed[x.UUID] = true
		d := g.of(x.UUID)
		d.Name = nameOf(x)
		d.Pending, d.Slow, d.Joined = x.Pending, x.Slow, x.Joined
		if d.Links = max(d.Links, x.Links); x.Links < d.Links && d.Slow == "" && !x.Lost {
			d.Slow = fmt.Sprintf("%d of its %d NVLinks are active", x.Links, d.Links)
		}
		if x.Lost {
			d.lose(x.UUID, cmp.Or(x.Fault, "it does not answer"), lost)
			continue
		}
		d.Lost = ""
		if x.Judged {
			d.applyVerdict(x.Recovery)
		}
	}
	for uuid, d := range g.saved.Devices {
		if !listed[uuid] {
			d.lose(uuid, "it is no longer listed", lost)
		}
	}
	return lost
}

// lose records that a GPU does not answer.
func (d *device) lose(uuid, why string, lost map[string]Outcome) {
	if d.Lost == "" {
		text := d.Name + ": the driver has lost it: " + why
		lost[uuid] = Outcome{Notice: text, Blame: text, Doom: true}
	}
	d.Lost = why
}

// nameOf returns how messages name a GPU.
func nameOf(x *gpu.Device) string {
	name := fmt.Sprintf("GPU %d", x.Index)
	switch {
	case x.Parent != "" && x.Serial != "":
		return fmt.Sprintf("%s (%s of serial %s)", name, x.Type, x.Serial)
	case x.Parent != "":
		return fmt.Sprintf("%s (%s of %s)", name, x.Type, x.Parent)
	case x.Serial != "":
		return fmt.Sprintf("%s (serial %s)", name, x.Serial)
	}
	return name
}

// Status is the state of a GPU for the scheduler.
type Status struct {
	Fault, Degraded string
	Repair          cluster.Repair
}

// Status returns the state of a GPU.
func (g *GPUs) Status(now time.Time, uuid string) Status {
	d := g.saved.Devices[uuid]
	if d == nil {
		return Status{}
	}
	s := Status{Degraded: d.Slow}
	if d.hot() {
		s.Degraded = "hot: its clocks were reduced for its temperature or power for most of the last 5 minutes"
	}
	for _, x := range d.Degraded {
		if x.Until.After(now) {
			s.Degraded = x.Why
		}
	}
	s.Degraded = cmp.Or(d.LinkBad, s.Degraded)
	if d.Pending {
		s.Repair = cluster.RepairReset
	}
	switch {
	case d.Lost != "":
		s.Fault, s.Repair = "the driver has lost it: "+d.Lost, cluster.RepairReboot
	case d.Mark.Action == gpu.Reboot:
		s.Fault, s.Repair = d.Mark.Why, cluster.RepairReboot
	case d.Mark.Action == gpu.Drain:
		s.Fault = d.Mark.Why
	case d.Mark.Action != 0:
		s.Fault, s.Repair = d.Mark.Why, cluster.RepairReset
	}
	return s
}

// Faulty returns the GPUs, by UUID, that are out of service until a repair.
func (g *GPUs) Faulty(now time.Time, until cluster.Repair) (uuids []string) {
	for _, uuid := range slices.Sorted(maps.Keys(g.saved.Devices)) {
		if s := g.Status(now, uuid); s.Fault != "" && s.Repair == until {
			uuids = append(uuids, uuid)
		}
	}
	return uuids
}

// Conditions returns the problems of the node with its GPUs.
func (g *GPUs) Conditions(now time.Time) (list []cluster.Condition) {
	add := func(cause string, effect cluster.Effect, repair cluster.Repair, format string, args ...any) {
		list = append(list, cluster.Condition{Cause: cause, Effect: effect, Repair: repair, Message: fmt.Sprintf(format, args...)})
	}
	for _, uuid := range slices.Sorted(maps.Keys(g.saved.Devices)) {
		d := g.saved.Devices[uuid]
		switch {
		case d.Lost != "":
			add("gpu_lost", cluster.Drains, cluster.RepairReboot, "%s: the driver has lost it (%s): reboot, check power and seating", d.Name, d.Lost)
		case d.Mark.Action == gpu.Reboot:
			add("gpu_reboot", cluster.Drains, cluster.RepairReboot, "%s: %s: reboot, check power and seating", d.Name, d.Mark.Why)
		case d.Mark.Action == gpu.Drain:
			add("gpu_check", cluster.Drains, cluster.NoRepair, "%s: %s", d.Name, d.Mark.Why)
		case d.Mark.Action != 0 && d.Joined:
			add("gpu_reset", cluster.Drains, cluster.RepairReset, "%s: %s: reset it with the GPUs that NVLink connects to it", d.Name, d.Mark.Why)
		case d.Mark.Action != 0:
			add("gpu_reset", cluster.Notice, cluster.RepairReset, "%s: %s: reset it when it is idle", d.Name, d.Mark.Why)
		case d.LinkBad != "":
			add("nvlink", cluster.Drains, cluster.RepairReset, "%s", d.LinkBad)
		case d.Pending:
			add("gpu_remap", cluster.Notice, cluster.RepairReset, "%s: row remapping pending: reset the GPU when it is idle", d.Name)
		}
		if s := g.Status(now, uuid); s.Degraded != "" && d.LinkBad == "" {
			add("gpu_degraded", cluster.Degrades, cluster.NoRepair, "%s: %s", d.Name, s.Degraded)
		}
	}
	return list
}
