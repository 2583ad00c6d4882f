//go:build linux

package local

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	keepListed = time.Hour              // how long an ended instance is listed
	endPoll    = 20 * time.Millisecond  // between two checks whether an instance has ended
	orderlyEnd = 5 * time.Second        // until an instance that does not end is killed
	maxConsole = 16 << 10               // bytes of the end of the console output
	slots      = 1024                   // more than instances that run at a time
	safety     = 500 * time.Millisecond // between the last check and the deadline of the call
)

func validate(s *store) *burst.Answer {
	a := &burst.Answer{}
	set, err := s.settings()
	if err != nil {
		a.Problems = append(a.Problems, err.Error())
		return a
	}
	for _, name := range []string{"gctl", "gnoded"} {
		if _, err := set.program(name); err != nil {
			a.Problems = append(a.Problems, err.Error())
		}
	}
	return a
}

func offers(s *store) (*burst.Answer, error) {
	set, err := s.usable()
	if err != nil {
		return nil, err
	}
	return &burst.Answer{Currency: set.Currency, Offers: set.priced()}, nil
}

// launch starts instances, or returns those of the client token.
func launch(s *store, q *burst.Question) (*burst.Answer, error) {
	l := q.Launch
	if l == nil || l.ClientToken == "" || l.Launch == 0 || l.Try == 0 || l.Nodes < 1 || l.LifetimeSeconds < 1 {
		return nil, fail(burst.FailureInvalid, "the launch lacks a client token, a number, nodes or a lifetime")
	}
	set, err := s.usable()
	if err != nil {
		return nil, err
	}
	records, err := s.all()
	if err != nil {
		return nil, err
	}
	arguments, err := argumentsOf(q)
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(slices.Clone(records), func(x *record) bool { return x.Cluster != q.Cluster || x.Token != l.ClientToken })
	if len(own) > 0 && own[0].Arguments == arguments && len(own) < l.Nodes && !s.anyStarted(own) {
		if err := s.forget(own); err != nil { // an earlier call was killed before it had recorded all of them
			return nil, err
		}
		own = nil
	}
	if len(own) == 0 {
		if own, err = create(s, set, q, records, arguments); err != nil {
			return nil, err
		}
	}
	if own[0].Arguments != arguments {
		return nil, fail(burst.FailureMismatch, "the client token %s was used with other arguments", l.ClientToken)
	}
	for _, x := range own {
		if err := start(s, set, x, &l.UserData); err != nil {
			return nil, err
		}
	}
	if lost, err := s.fault(set, &set.LostResponses); lost || err != nil {
		return nil, errors.Join(err, fail(burst.FailureTryLater, "lost_responses of %s", settingsFile))
	}
	return convert(s, own)
}

// argumentsOf returns a hash of a launch without the join token.
func argumentsOf(q *burst.Question) (string, error) {
	l := *q.Launch
	l.UserData = burst.UserData{}
	text, err := json.Marshal(&l)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// anyStarted reports whether one of the instances was started. That is so only when all of a launch are recorded.
func (s *store) anyStarted(records []*record) bool {
	return slices.ContainsFunc(records, func(x *record) bool { return s.exists(x.ID, startedFile) })
}

// forget removes instances that were never started.
func (s *store) forget(records []*record) (err error) {
	for _, x := range records {
		err = errors.Join(err, os.RemoveAll(s.path(x.ID)))
	}
	return err
}

// create records the instances of a launch, or none.
func create(s *store, set *Settings, q *burst.Question, records []*record, arguments string) ([]*record, error) {
	l := q.Launch
	o, found := set.offer(l.Offer, l.Market)
	if !found || l.Type != o.Type || l.Region != o.Region {
		return nil, fail(burst.FailureNotFound, "no offer %s, %s in the region %s on the market %s", l.Offer, l.Type, l.Region, l.Market)
	}
	price, err := cluster.ParseMoney(o.Price)
	highest, bad := cluster.ParseMoney(l.MaxPrice)
	if err := errors.Join(err, bad); err != nil {
		return nil, fail(burst.FailureInvalid, "%v", err)
	}
	if price > highest {
		return nil, fail(burst.FailurePrice, "the price is %s, above max_price %s", o.Price, l.MaxPrice)
	}
	if failed, err := s.fault(set, &set.CapacityFailures); failed || err != nil {
		return nil, errors.Join(err, fail(burst.FailureCapacity, "capacity_failures of %s", settingsFile))
	}
	used := map[int]bool{}
	for _, x := range records {
		if state, err := s.state(x); err != nil {
			return nil, err
		} else if state != burst.StateTerminated {
			used[x.Slot] = true
		}
	}
	if len(used)+l.Nodes > min(set.MaxInstances, slots) {
		return nil, fail(burst.FailureCapacity, "%d instances are running, at most %d (max_instances)", len(used), set.MaxInstances)
	}
	return s.createAll(q, o, arguments, used)
}

func (s *store) createAll(q *burst.Question, o burst.Offer, arguments string, used map[int]bool) (own []*record, err error) {
	l, now := q.Launch, time.Now().UTC().Truncate(time.Second)
	group := make([]byte, 5)
	rand.Read(group) // never fails (crypto/rand)
	slot := 0
	for i := range l.Nodes {
		for used[slot] {
			slot++
		}
		used[slot] = true
		x := &record{
			ID: fmt.Sprintf("i-%s-%d", hex.EncodeToString(group), i), Cluster: q.Cluster, Launch: l.Launch, Try: l.Try, Token: l.ClientToken,
			Arguments: arguments, Offer: o, Slot: slot, Launched: now, Expires: now.Add(time.Duration(l.LifetimeSeconds) * time.Second),
		}
		if err = os.MkdirAll(s.path(x.ID, machineDir), 0o755); err == nil {
			err = s.write(x)
		}
		if err != nil {
			return nil, errors.Join(err, s.forget(append(own, x)))
		}
		own = append(own, x)
	}
	return own, nil
}

func convert(s *store, records []*record) (*burst.Answer, error) {
	a := &burst.Answer{Instances: []burst.Instance{}}
	for _, x := range records {
		i, err := s.instance(x)
		if err != nil {
			return nil, err
		}
		a.Instances = append(a.Instances, i)
	}
	return a, nil
}

func list(s *store, q *burst.Question) (*burst.Answer, error) {
	if _, err := s.usable(); err != nil {
		return nil, err
	}
	records, err := s.all()
	if err != nil {
		return nil, err
	}
	return convert(s, slices.DeleteFunc(records, func(x *record) bool {
		return x.Cluster != q.Cluster || !x.EndedAt.IsZero() && time.Since(x.EndedAt) > keepListed
	}))
}

// terminate ends instances of the cluster.
func terminate(s *store, q *burst.Question) (*burst.Answer, error) {
	if _, err := s.usable(); err != nil {
		return nil, err
	}
	var ended []*record
	for _, id := range slices.Compact(slices.Sorted(slices.Values(q.Instances))) {
		x, err := s.read(id)
		if err != nil || x.Cluster != q.Cluster {
			continue // unknown
		}
		if err := s.end(x, q.Deadline.Add(-safety)); err != nil {
			return nil, err
		}
		ended = append(ended, x)
	}
	return convert(s, ended)
}

// end ends the processes of an instance and removes its data.
func (s *store) end(x *record, deadline time.Time) error {
	if !x.EndedAt.IsZero() {
		return nil
	}
	begin := time.Now()
	for signal := unix.SIGTERM; s.running(x.ID); time.Sleep(endPoll) {
		if time.Since(begin) > orderlyEnd {
			signal = unix.SIGKILL
		}
		if err := s.signal(x, signal); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fail(burst.FailureTryLater, "instance %s does not end", x.ID)
		}
	}
	return s.finish(x)
}

// signal signals the first process of a running instance; a killed one takes its process group with it.
func (s *store) signal(x *record, signal unix.Signal) error {
	text, err := os.ReadFile(s.path(x.ID, pidFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was started just now
	}
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err = errors.Join(err, bad); err != nil || pid < 2 {
		return fmt.Errorf("the process ID of %s is %q: %w", x.ID, text, err)
	}
	if signal == unix.SIGKILL {
		pid = -pid
	}
	if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

func console(s *store, q *burst.Question) (*burst.Answer, error) {
	if _, err := s.usable(); err != nil {
		return nil, err
	}
	if len(q.Instances) != 1 {
		return nil, fail(burst.FailureInvalid, "one instance ID is required")
	}
	x, err := s.read(q.Instances[0])
	if err != nil || x.Cluster != q.Cluster {
		return nil, fail(burst.FailureNotFound, "no instance %q", q.Instances[0])
	}
	f, err := os.Open(s.path(x.ID, consoleFile))
	if errors.Is(err, os.ErrNotExist) {
		return &burst.Answer{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxConsole {
		_, _ = f.Seek(-maxConsole, io.SeekEnd)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConsole))
	return &burst.Answer{Console: strings.ToValidUTF8(string(text), "?")}, err
}
