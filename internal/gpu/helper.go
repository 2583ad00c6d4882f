package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Limits are the deadlines of a helper. A zero field means the default.
type Limits struct {
	Inventory time.Duration // 45 s: without its persistence daemon a driver initialises each GPU
	Processes time.Duration // 10 s
	Silence   time.Duration // 30 s without a beat
	Divide    time.Duration // 2 min
	Restart   time.Duration // 1 s between two helpers, doubled up to 30 times
}

func (l Limits) withDefaults() Limits {
	for field, value := range map[*time.Duration]time.Duration{
		&l.Inventory: 45 * time.Second, &l.Processes: 10 * time.Second, &l.Silence: 30 * time.Second, &l.Restart: time.Second, &l.Divide: 2 * time.Minute,
	} {
		if *field <= 0 {
			*field = value
		}
	}
	return l
}

// Helper is the provider of real GPUs. It starts its program on first use and restarts it after its
// end.
type Helper struct {
	program string
	host    string
	limits  Limits
	log     *slog.Logger
	layouts Layouts
	root    string // of the files of the driver, for tests; "" for /

	mu    sync.Mutex
	child *child
	ended uint64 // programs that ended by themselves or were killed

	asking chan struct{} // held by the only query for loads in flight
}

// NewHelper returns a provider that uses the given program (gnvml). host names this node in the
// names of NVLink domains. Close ends the program.
func NewHelper(program, host string, limits Limits, log *slog.Logger) *Helper {
	return &Helper{program: program, host: host, limits: limits.withDefaults(), log: log, asking: make(chan struct{}, 1)}
}

// Close ends the program.
func (h *Helper) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.child != nil {
		h.child.kill()
	}
}

// Restarts returns how often the program was started again.
func (h *Helper) Restarts() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// current returns the running child, and starts one if none runs.
func (h *Helper) current() (*child, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.child != nil && !h.child.over() {
		return h.child, nil
	}
	child, err := startChild(h.program)
	if err != nil {
		return nil, fmt.Errorf("GPU helper: %w", err)
	}
	h.child = child
	return child, nil
}

// call sends one request. It kills a child that misses the deadline, since the child hangs in the
// driver and a new one may not.
func (h *Helper) call(ctx context.Context, request Request, limit time.Duration) (Reply, error) {
	reply, err := h.callRaw(ctx, request, limit)
	if err == nil && reply.Error != "" {
		return Reply{}, fmt.Errorf("%s: %w", reply.Error, ErrUnanswered)
	}
	return reply, err
}

// callRaw is call without the error that the child reports.
func (h *Helper) callRaw(ctx context.Context, request Request, limit time.Duration) (Reply, error) {
	child, err := h.current()
	if err != nil {
		return Reply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := child.ask(ctx, request)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		child.kill()
		return Reply{}, fmt.Errorf("no answer within %s: %w", limit, ErrUnanswered)
	case err != nil:
		return Reply{}, err
	}
	return reply, nil
}

// Inventory implements Provider.
func (h *Helper) Inventory(ctx context.Context) (Inventory, error) {
	reply, err := h.call(ctx, Request{Op: "inventory"}, h.limits.Inventory)
	if err != nil {
		return Inventory{}, err
	}
	if reply.Host == nil {
		return Inventory{}, fmt.Errorf("%w: no inventory", ErrProtocol)
	}
	return h.describe(*reply.Host), nil
}

// InUse implements Provider.
func (h *Helper) InUse(ctx context.Context, uuids []string) (InUse, error) {
	reply, err := h.call(ctx, Request{Op: "processes", UUIDs: uuids}, h.limits.Processes)
	return InUse{reply.Processes, reply.Memory}, err
}

// Loads implements Provider. Its answer has low value: it starts no child, kills no slow one (which
// may be taking an inventory), and sends nothing while the previous query is in flight.
func (h *Helper) Loads(ctx context.Context, held []DeviceSet) ([]Load, error) {
	h.mu.Lock()
	child := h.child
	h.mu.Unlock()
	if child == nil || child.over() {
		return nil, fmt.Errorf("the GPU helper is not running: %w", ErrUnanswered)
	}
	select {
	case h.asking <- struct{}{}:
	default:
		return nil, fmt.Errorf("the previous query is in flight: %w", ErrUnanswered)
	}
	request := Request{Op: "loads"}
	for _, h := range held {
		request.UUIDs = append(request.UUIDs, h.UUIDs...)
	}
	type answer struct {
		reply Reply
		err   error
	}
	answered := make(chan answer, 1)
	go func() { // until the child answers or ends
		reply, err := child.ask(context.WithoutCancel(ctx), request)
		<-h.asking
		answered <- answer{reply, err}
	}()
	select {
	case a := <-answered:
		if a.err == nil && a.reply.Error != "" {
			a.err = fmt.Errorf("%s: %w", a.reply.Error, ErrUnanswered)
		}
		return a.reply.Loads, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnanswered, ctx.Err())
	}
}

// Watch implements Provider. It keeps a child running, receives its events, and kills a child that
// sends no heartbeat.
func (h *Helper) Watch(ctx context.Context, report func(Event)) error {
	for pause := h.limits.Restart; ; pause = min(2*pause, 30*h.limits.Restart) {
		began := time.Now()
		err := h.watchOnce(ctx, report)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		h.log.Warn("gnvml exited", "err", err, "retry_in", pause)
		h.mu.Lock()
		h.ended++
		h.mu.Unlock()
		if time.Since(began) > time.Minute {
			pause = h.limits.Restart
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (h *Helper) watchOnce(ctx context.Context, report func(Event)) error {
	child, err := h.current()
	if err != nil {
		return err
	}
	silent := time.NewTimer(h.limits.Silence)
	defer silent.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-child.done:
			return child.reason()
		case <-silent.C:
			child.kill()
			return fmt.Errorf("no heartbeat for %s: %w", h.limits.Silence, ErrUnanswered)
		case <-child.beats:
			silent.Reset(h.limits.Silence)
		case raw := <-child.events:
			if e, known := event(raw); known {
				report(e)
			}
		}
	}
}

// describe decides the names of the devices here. The instances of a GPU take its place.
func (h *Helper) describe(host Host) Inventory {
	inventory := Inventory{Driver: host.Driver, Undivided: undivided(host.Devices, h.layouts)}
	names := domains(h.host, host.Devices)
	for i := range host.Devices {
		raw := &host.Devices[i]
		d := deviceOf(raw, names[i])
		if !raw.MIG {
			inventory.add(d)
			continue
		}
		for j := range raw.Instances {
			inventory.add(h.instanceOf(&d, &raw.Instances[j]))
		}
	}
	if len(inventory.Devices) > 0 {
		inventory.Common = commonFiles()
	}
	return inventory
}

// add appends a device.
func (i *Inventory) add(d Device) {
	d.Index = int32(len(i.Devices))
	i.Devices = append(i.Devices, d)
}

func deviceOf(raw *RawDevice, domain string) Device {
	d := Device{GPU: cluster.GPU{
		Index: raw.Index, UUID: raw.UUID, Type: Type(raw.Name), Memory: cluster.Bytes(raw.Memory),
		Minor: raw.Minor, NUMA: numa(raw.Bus), Domain: domain, Fault: raw.Bad,
	}, Product: raw.Name, Bus: raw.Bus, Serial: raw.Serial, Lost: raw.Lost, Pending: raw.Pending, Slow: raw.Slow}
	d.Links, d.Joined = len(raw.Links), slices.ContainsFunc(raw.Links, func(end string) bool { return end != "switch" })
	if raw.Recovery != nil {
		d.Recovery, d.Judged = *raw.Recovery, true
	}
	if raw.Minor >= 0 {
		path := "/dev/nvidia" + strconv.Itoa(int(raw.Minor))
		d.Files = []File{{Host: path, Task: path}}
	}
	return d
}

// commonFiles lists the driver's devices that every program needs, and those for rack-scale GPUs if
// they exist. nvidia-modeset is for displays.
func commonFiles() []File {
	var files []File
	patterns := []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps-imex-channels/channel*"}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // the patterns are valid
		for _, path := range found {
			files = append(files, File{Host: path, Task: path})
		}
	}
	return files
}

// numa returns the NUMA node of a PCI device; -1 for none.
func numa(bus string) int32 {
	if bus == "" || strings.ContainsAny(bus, "/\x00") {
		return -1
	}
	data, err := os.ReadFile("/sys/bus/pci/devices/" + bus + "/numa_node")
	if err != nil {
		return -1
	}
	node, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 32)
	if err != nil || node < 0 {
		return -1
	}
	return int32(node)
}
