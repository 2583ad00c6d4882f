package cloud

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// ErrTable is wrapped by every error of a file that describes a cloud.
var ErrTable = errors.New("invalid table")

// Bounds of what a file may say.
const (
	maxKinds = 10_000
	maxSize  = 1 << 16 // CPUs of a node
	maxGPUs  = 1024    // of a node
	maxBoot  = 24 * time.Hour
	maxPrice = cluster.MaxOfferPrice
	maxRows  = 10_000_000
)

// table is a file with a header.
type table struct {
	in     *csv.Reader
	column map[string]int
	row    []string
	line   int
}

// open reads the header.
func open(r io.Reader, required ...string) (*table, error) {
	t := &table{in: csv.NewReader(r), column: map[string]int{}}
	t.in.Comment, t.in.TrimLeadingSpace = '#', true
	head, err := t.in.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: no header: %w", ErrTable, err)
	}
	for i, name := range head {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))
		if _, known := t.column[name]; known {
			return nil, fmt.Errorf("%w: duplicate column %q", ErrTable, name)
		}
		t.column[name] = i
	}
	for _, name := range required {
		if _, has := t.column[name]; !has {
			return nil, fmt.Errorf("%w: no column %q", ErrTable, name)
		}
	}
	return t, nil
}

// next reads a line; false at the end.
func (t *table) next() (bool, error) {
	var err error
	if t.row, err = t.in.Read(); errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrTable, err)
	}
	t.line, _ = t.in.FieldPos(0)
	return true, nil
}

func (t *table) text(name string) string {
	if i, has := t.column[name]; has {
		return strings.TrimSpace(t.row[i])
	}
	return ""
}

func (t *table) fault(name, want string) error {
	return fmt.Errorf("%w: line %d: %s %q is not %s", ErrTable, t.line, name, t.text(name), want)
}

// into reads a field of the line, if it is there and not empty.
func into[T any](t *table, err *error, name string, field *T, want string, read func(string) (T, bool)) {
	text := t.text(name)
	if *err != nil || text == "" {
		return
	}
	v, ok := read(text)
	if !ok {
		*err = t.fault(name, want)
		return
	}
	*field = v
}

// ReadKinds reads a table of kinds of nodes. Its columns are in any order: name, price and cpus, and if wanted market (spot), type,
// region, boot (5m), boot_min (boot), risk (0), no_capacity (0), memory, gpus, gpu_type, gpu_memory.
func ReadKinds(r io.Reader) ([]Kind, error) {
	t, err := open(r, "name", "price", "cpus")
	if err != nil {
		return nil, err
	}
	for name := range t.column {
		if !slices.Contains(columns[:], name) {
			return nil, fmt.Errorf("%w: unknown column %q, want some of %s", ErrTable, name, strings.Join(columns[:], ", "))
		}
	}
	var list []Kind
	for {
		more, err := t.next()
		if err != nil || !more {
			if err == nil && len(list) == 0 {
				err = fmt.Errorf("%w: it has no line", ErrTable)
			}
			return list, err
		}
		k, err := t.kind()
		if err != nil {
			return nil, err
		}
		known := slices.ContainsFunc(list, func(o Kind) bool { return o.Offer.Key() == k.Offer.Key() })
		if known || len(list) == maxKinds {
			return nil, fmt.Errorf("%w: line %d: %s (%s) is a duplicate, or follows %d others, the most that a table may have", ErrTable, t.line, k.Offer.Name, k.Offer.Market, maxKinds)
		}
		list = append(list, k)
	}
}

var columns = [...]string{ // never written
	"name", "market", "type", "region", "price", "boot", "boot_min", "risk", "no_capacity", "cpus", "memory", "gpus", "gpu_type", "gpu_memory",
}

// kind reads a line of a table of kinds.
func (t *table) kind() (Kind, error) {
	k := Kind{Offer: cluster.Offer{Market: cluster.Spot, Boot: 5 * time.Minute}}
	o := &k.Offer
	var err error
	var risk float64
	o.Name, o.Type, o.Region, o.GPUType = t.text("name"), t.text("type"), t.text("region"), t.text("gpu_type")
	if o.Name == "" {
		return k, t.fault("name", "the name of an offer")
	}
	into(t, &err, "market", &o.Market, "spot or on-demand", func(s string) (cluster.Market, bool) {
		m, err := cluster.ParseMarket(s)
		return m, err == nil && m != cluster.AnyMarket
	})
	into(t, &err, "price", &o.Price, "the price of an hour, such as 2.50", money)
	into(t, &err, "boot", &o.Boot, "a time up to 24h, such as 5m", boot)
	k.BootMin = o.Boot
	into(t, &err, "boot_min", &k.BootMin, "a time up to boot", func(s string) (time.Duration, bool) {
		d, ok := boot(s)
		return d, ok && d <= o.Boot
	})
	into(t, &err, "risk", &risk, "a probability below 1", probability)
	into(t, &err, "no_capacity", &k.NoCapacity, "a probability below 1", probability)
	into(t, &err, "cpus", &o.CPUs, "a number of CPUs", func(s string) (int32, bool) { return count(s, 1, maxSize) })
	into(t, &err, "gpus", &o.GPUs, "a number of GPUs", func(s string) (int32, bool) { return count(s, 0, maxGPUs) })
	into(t, &err, "memory", &o.Memory, "a size such as 512GiB", size)
	into(t, &err, "gpu_memory", &o.GPUMemory, "a size such as 80GiB", size)
	o.Risk = int32(risk * cluster.OneUnit)
	if err == nil && (o.Price == 0 || o.CPUs == 0) {
		err = fmt.Errorf("%w: line %d: %s needs a price and cpus", ErrTable, t.line, o.Name)
	}
	return k, err
}

func money(s string) (int64, bool) {
	n, err := cluster.ParseMoney(s)
	return n, err == nil && n > 0 && n <= maxPrice
}

func boot(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0 && d <= maxBoot
}

// probability reads 0.05 or 5%.
func probability(s string) (float64, bool) {
	digits, percent := strings.CutSuffix(s, "%")
	p, err := strconv.ParseFloat(digits, 64)
	if percent {
		p /= 100
	}
	return p, err == nil && p >= 0 && p < 1
}

func count(s string, least, most int64) (int32, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err == nil && n >= least && n <= most
}

func size(s string) (cluster.Bytes, bool) {
	b, err := cluster.ParseBytes(s, 1)
	return b, err == nil && b >= 0
}

// ReadPrices reads a history of spot prices, as of "aws ec2 describe-spot-price-history", in any order of lines and columns:
// Timestamp, InstanceType, AvailabilityZone, SpotPrice. It sets the prices of the spot kinds whose name is TYPE/ZONE, or else TYPE. All
// times count from the first one of the history.
func ReadPrices(r io.Reader, kinds []Kind) error {
	t, err := open(r, "timestamp", "instancetype", "availabilityzone", "spotprice")
	if err != nil {
		return err
	}
	at := map[string]int{}
	for i := range kinds {
		if kinds[i].Offer.Market == cluster.Spot {
			at[kinds[i].Offer.Name] = i
		}
	}
	h := history{at: at, zones: map[int]string{}, prices: map[int][]pricedAt{}}
	for n := 0; ; n++ {
		more, err := t.next()
		if err != nil {
			return err
		}
		if !more {
			return h.into(kinds)
		}
		if n == maxRows {
			return fmt.Errorf("%w: more than %d lines", ErrTable, maxRows)
		}
		if err := h.add(t); err != nil {
			return err
		}
	}
}

// history is the prices that were read.
type history struct {
	at     map[string]int // of spot kinds, by name
	zones  map[int]string
	prices map[int][]pricedAt
	first  time.Time
}

type pricedAt struct {
	at    time.Time
	price int64
}

// add reads a line of a history.
func (h *history) add(t *table) error {
	kind, zone := t.text("instancetype"), t.text("availabilityzone")
	when, err := time.Parse(time.RFC3339, t.text("timestamp"))
	if err != nil {
		return t.fault("timestamp", "a time such as 2026-03-01T12:00:00Z")
	}
	price, ok := money(t.text("spotprice"))
	if !ok {
		return t.fault("spotprice", "a price of an hour with at most six decimals")
	}
	if h.first.IsZero() || when.Before(h.first) {
		h.first = when
	}
	i, known := h.at[kind+"/"+zone]
	if !known {
		if i, known = h.at[kind]; !known {
			return nil // not a kind of this cloud
		}
		if other, has := h.zones[i]; has && other != zone {
			return fmt.Errorf("%w: line %d: prices of %s in the zones %s and %s: name the kinds %s/ZONE", ErrTable, t.line, kind, other, zone, kind)
		}
		h.zones[i] = zone
	}
	h.prices[i] = append(h.prices[i], pricedAt{when, price})
	return nil
}

// into sets the prices of the kinds.
func (h *history) into(kinds []Kind) error {
	if len(h.prices) == 0 {
		return fmt.Errorf("%w: it has no price of a spot offer of the cloud: their names are TYPE/ZONE or TYPE", ErrTable)
	}
	for i, list := range h.prices {
		slices.SortStableFunc(list, func(a, b pricedAt) int { return a.at.Compare(b.at) })
		for _, p := range list {
			after := p.at.Sub(h.first)
			if n := len(kinds[i].Prices); n > 0 && kinds[i].Prices[n-1].After == after {
				kinds[i].Prices[n-1].Price = p.price
				continue
			}
			kinds[i].Prices = append(kinds[i].Prices, Price{after, p.price})
		}
	}
	return nil
}
