package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A MIG instance is a part of a GPU with memory and compute units of its own. It is a GPU of its own to
// the scheduler, whose type is the name of its profile: "1g.10gb" has one of seven compute slices, and
// about 10 GB of memory.

// ErrMIGLayout means that no GPU can be divided as a layout requests.
var ErrMIGLayout = errors.New("impossible MIG layout")

// migProfile matches the names of profiles.
var migProfile = regexp.MustCompile(`^[1-9]g\.[1-9][0-9]{0,3}gb(\+[a-z.]+)?$`)

// IsMIGProfile reports whether a GPU type is the name of a MIG profile.
func IsMIGProfile(gpuType string) bool {
	// The second character excludes most types cheaply.
	return len(gpuType) > 2 && gpuType[1] == 'g' && gpuType[2] == '.' && migProfile.MatchString(gpuType)
}

// MIGMemory returns the memory that the name of a profile states; 0 for other types.
func MIGMemory(profile string) Bytes {
	if !IsMIGProfile(profile) {
		return 0
	}
	digits, _, _ := strings.Cut(profile[len("1g."):], "gb")
	n, _ := strconv.Atoi(digits) // migProfile allows digits only
	return Bytes(n) * GiB
}

// MIGSlots are the places that a GPU has for instances of a profile, in memory slices.
type MIGSlots struct {
	Profile string
	Size    uint32
	Starts  []uint32 // ascending
}

// MIGPlace is the place of one instance.
type MIGPlace struct {
	Profile     string
	Start, Size uint32
}

// String returns the form that messages use: 3g.40gb at 4-7.
func (p MIGPlace) String() string {
	return fmt.Sprintf("%s at %d-%d", p.Profile, p.Start, p.Start+p.Size-1)
}

// PlaceMIG chooses the places of instances, so that no two overlap, by ascending start. The same slots and
// layout always give the same places. Errors wrap ErrMIGLayout. It tries all places: at most 8 instances
// have a few each.
func PlaceMIG(slots []MIGSlots, layout []string) ([]MIGPlace, error) {
	var wants []*MIGSlots
	for _, name := range layout {
		i := slices.IndexFunc(slots, func(s MIGSlots) bool { return s.Profile == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: the GPU has no profile %q (it has %s)", ErrMIGLayout, name, profileNames(slots))
		}
		wants = append(wants, &slots[i])
	}
	if len(wants) > maxMIGInstances {
		return nil, fmt.Errorf("%w: %d instances; a GPU has at most %d", ErrMIGLayout, len(wants), maxMIGInstances)
	}
	slices.SortStableFunc(wants, func(a, b *MIGSlots) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(b.Profile, a.Profile))
	})
	places, ok := placeRest(nil, 0, wants)
	if !ok {
		return nil, fmt.Errorf("%w: %s overlap on one GPU, wherever they are placed", ErrMIGLayout, strings.Join(layout, ", "))
	}
	slices.SortFunc(places, func(a, b MIGPlace) int { return cmp.Compare(a.Start, b.Start) })
	return places, nil
}

// maxMIGInstances is the number of instances of one GPU.
const maxMIGInstances = 8

// placeRest places the wants on the slices that are not used.
func placeRest(places []MIGPlace, used uint64, wants []*MIGSlots) ([]MIGPlace, bool) {
	if len(wants) == 0 {
		return places, true
	}
	w := wants[0]
	for _, start := range w.Starts {
		if start+w.Size > 64 {
			continue
		}
		mask := (uint64(1)<<w.Size - 1) << start
		if used&mask != 0 {
			continue
		}
		if all, ok := placeRest(append(places, MIGPlace{w.Profile, start, w.Size}), used|mask, wants[1:]); ok {
			return all, true
		}
	}
	return nil, false
}

func profileNames(slots []MIGSlots) string {
	names := make([]string, len(slots))
	for i, s := range slots {
		names[i] = s.Profile
	}
	return strings.Join(names, ", ")
}

// migMemories lists the sizes in GB of 1, 2, 4 and 8 memory slices, as profiles name them, of the models
// that have seven compute and eight memory slices.
var migMemories = [...][4]int{
	{5, 10, 20, 40},   // A100 40GB
	{10, 20, 40, 80},  // A100 80GB, H100 80GB
	{12, 24, 47, 94},  // H100 NVL
	{12, 24, 48, 96},  // H100 96GB, GH200 96GB
	{18, 35, 71, 141}, // H200
	{23, 45, 90, 180}, // B200
	{24, 47, 95, 189}, // GB200
	{34, 67, 135, 269},
	{35, 70, 139, 278}, // B300, GB300
}

// MIGModels returns the slots of the models that have MIG. The driver has the final word on a node.
func MIGModels() [][]MIGSlots {
	ones := []uint32{0, 1, 2, 3, 4, 5, 6}
	var models [][]MIGSlots
	for _, gb := range migMemories {
		name := func(compute, memory int) string { return fmt.Sprintf("%dg.%dgb", compute, memory) }
		models = append(models, []MIGSlots{
			{name(1, gb[0]), 1, ones},
			{name(1, gb[1]), 2, []uint32{0, 2, 4, 6}},
			{name(2, gb[1]), 2, []uint32{0, 2, 4}},
			{name(3, gb[2]), 4, []uint32{0, 4}},
			{name(4, gb[2]), 4, []uint32{0}},
			{name(7, gb[3]), 8, []uint32{0}},
		})
	}
	return append(models,
		[]MIGSlots{{"1g.6gb", 1, ones[:4]}, {"2g.12gb", 2, []uint32{0, 2}}, {"4g.24gb", 4, []uint32{0}}},  // A30
		[]MIGSlots{{"1g.24gb", 1, ones[:4]}, {"2g.48gb", 2, []uint32{0, 2}}, {"4g.96gb", 4, []uint32{0}}}, // RTX PRO 6000
	)
}

// CheckMIGLayout refuses a layout that no model has. Variants of a profile, such as 1g.10gb+me, use the
// slots of the plain one. Errors wrap ErrMIGLayout.
func CheckMIGLayout(layout []string) error {
	plain := make([]string, len(layout))
	for i, name := range layout {
		if !IsMIGProfile(name) {
			return fmt.Errorf("%w: %q is no profile, such as 1g.10gb or 3g.40gb", ErrMIGLayout, name)
		}
		plain[i], _, _ = strings.Cut(name, "+")
	}
	var overlap error
	for _, model := range MIGModels() {
		has := func(name string) bool {
			return slices.ContainsFunc(model, func(s MIGSlots) bool { return s.Profile == name })
		}
		if slices.ContainsFunc(plain, func(name string) bool { return !has(name) }) {
			continue
		}
		if _, err := PlaceMIG(model, plain); err != nil {
			overlap = err
			continue
		}
		return nil
	}
	if overlap != nil {
		return overlap
	}
	return fmt.Errorf("%w: no GPU has all of the profiles %s", ErrMIGLayout, strings.Join(layout, ", "))
}

// MIGShares is the denominator of the share of an instance in its GPU: seven compute slices times eight
// memory slices.
const MIGShares = 56

// MIGShare returns the share of an instance in its GPU, in 1/56: the larger of its compute slices of
// seven and its memory slices of eight. 1g.10gb is 8/56 of a GPU with 80 GB, and 3g.40gb 28/56.
func MIGShare(profile string, memory, whole Bytes) int32 {
	compute := int64(0)
	if IsMIGProfile(profile) {
		compute = int64(profile[0] - '0')
	}
	slices := int64(0)
	if whole > 0 {
		slices = (int64(memory>>20)*8 + int64(whole>>20)/2) / max(int64(whole>>20), 1)
	}
	return int32(min(max(8*compute, 7*slices, 1), MIGShares))
}

// PricedType returns the name under which a GPU is charged: its type, and of a MIG instance also the type of
// its parent and its share in it, such as 1g.10gb@h100:8.
func (g *GPU) PricedType() string {
	if g.ParentType == "" || g.Share <= 0 || g.Share > MIGShares || !IsMIGProfile(g.Type) {
		return g.Type
	}
	return fmt.Sprintf("%s@%s:%d", g.Type, g.ParentType, g.Share)
}

// PricedShare returns the name under which one of a number of jobs on a shared GPU is charged, such as h100@h100:14 for
// one of 4: its part is rounded up to 1/[MIGShares]. For a single job it is the name of the whole GPU.
func PricedShare(priced string, jobs int32) string {
	if jobs <= 1 {
		return priced
	}
	return fmt.Sprintf("%s@%s:%d", priced, priced, (MIGShares+jobs-1)/jobs)
}

// CutPricedType returns the type of a GPU, and of a MIG instance the type of its parent and its share in it,
// in 1/[MIGShares]. The parent is "" for other GPUs. Of a part of a shared GPU the type is "", since the type of the GPU
// is that of its parent. O(length).
func CutPricedType(name string) (gpuType, parent string, share int64) {
	gpuType, rest, found := strings.Cut(name, "@")
	at := strings.LastIndexByte(rest, ':')
	if !found || at < 1 || !IsMIGProfile(gpuType) && gpuType != rest[:at] {
		return name, "", 0
	}
	share, err := strconv.ParseInt(rest[at+1:], 10, 64)
	if err != nil || share < 1 || share > MIGShares {
		return name, "", 0
	}
	if gpuType == rest[:at] {
		gpuType = ""
	}
	return gpuType, rest[:at], share
}

// TypeOfPriced returns the type of a GPU by the name under which it is charged.
func TypeOfPriced(name string) string {
	gpuType, parent, _ := CutPricedType(name)
	return cmp.Or(gpuType, parent)
}

// OfMIGShare returns the part of an amount that an instance counts for: amount × share / [MIGShares], rounded
// down. Neither may be negative. The product does not overflow. O(1).
func OfMIGShare(amount, share int64) int64 {
	return amount/MIGShares*share + amount%MIGShares*share/MIGShares
}

// PriceByType returns the price of a GPU by the name under which it is charged, from the prices of types: a MIG
// instance without a price of its own costs its share of its parent. It returns 0 without a price.
func PriceByType(prices func(gpuType string) (int64, bool), name string) int64 {
	gpuType, parent, share := CutPricedType(name)
	price, found := prices(gpuType)
	if !found && parent != "" {
		price, _ = prices(parent)
		price = OfMIGShare(price, share)
	}
	return price
}
