package fairshare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

const week = 7 * 24 * time.Hour

// TestScenarios runs testdata/*.txt: a tree by indentation, then its factors.
func TestScenarios(t *testing.T) { scenario.Cases(t, "testdata/*.txt", play) }

// play reads lines of "name shares usage", a user's name ending in "*", and the words "fair-tree",
// "classic" or "sum", and writes a line for each user.
func play(t *testing.T, text string) string {
	var nodes []Member
	var names []string
	var path []int32
	mode, sum := "", false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		f := strings.Fields(trimmed)
		switch {
		case len(f) == 0 || f[0] == "#":
		case f[0] == "fair-tree", f[0] == "classic":
			mode = f[0]
		case f[0] == "sum":
			sum = true
		default:
			depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
			n := Member{Parent: -1, User: strings.HasSuffix(f[0], "*")}
			if depth > 0 {
				n.Parent = path[depth-1]
			}
			n.OfParent = f[1] == "parent"
			n.Shares, _ = strconv.ParseInt(f[1], 10, 64)
			n.Usage, _ = strconv.ParseInt(f[2], 10, 64)
			path = append(path[:depth], int32(len(nodes)))
			nodes, names = append(nodes, n), append(names, f[0])
		}
	}
	tree, err := NewTree(nodes)
	if err != nil {
		t.Fatal(err)
	}
	if sum {
		tree.Sum()
	}
	factors := tree.FairTree(nil)
	if mode == "classic" {
		factors = tree.Classic(1, nil)
	}
	var out strings.Builder
	for i, f := range factors {
		fmt.Fprintf(&out, "%-10s shares %.6f usage %.6f effective %.6f level %.6f factor %.6f\n", names[i], f.NormShares, f.NormUsage, f.Effective, f.LevelFS, f.FairShare)
	}
	return out.String()
}

func TestHalves(t *testing.T) {
	for i := range halves {
		exact := new(big.Float).SetPrec(200).SetInt64(2)
		for range i + 1 { // 2^(1/2^(i+1)) by square roots
			exact.Sqrt(exact)
		}
		exact.Quo(new(big.Float).SetPrec(200).SetMantExp(big.NewFloat(1), 64), exact)
		off, _ := exact.Sub(exact, new(big.Float).SetPrec(200).SetUint64(halves[i])).Float64()
		if math.Abs(off) > 0.75 {
			t.Errorf("halves[%d] is off by %g", i, off)
		}
	}
}

// TestHalfLife checks that 1000 GPU-hours are 500 after one half-life and 250 after two, read once
// or often.
func TestHalfLife(t *testing.T) {
	const all = 1000 * 3600 * 1000
	u := cluster.Usage{Value: all, At: 1}
	for halvings, want := range []int64{all, all / 2, all / 4, all / 8} {
		now := u.At.Add(time.Duration(halvings) * week)
		if got := UsageAt(u, now, week); got != want {
			t.Errorf("after %d half-lives %d, want %d", halvings, got, want)
		}
		ticked := u
		for ticked.At < now {
			ticked = Rebase(ticked, min(now, ticked.At.Add(17*time.Second)), week)
			ticked = Rebase(ticked, ticked.At.Add(-time.Hour), week) // a clock that goes back changes nothing
		}
		if got := UsageAt(ticked, now, week); got != want {
			t.Errorf("after %d half-lives by ticks %d, want %d", halvings, got, want)
		}
	}
	if got := UsageAt(u, u.At.Add(10*week), 0); got != all {
		t.Errorf("without a half-life %d is left of %d", got, all)
	}
	if got := UsageAt(u, u.At.Add(100*week), week); got != 0 {
		t.Errorf("after 100 half-lives %d is left", got)
	}
}

// exactRebase returns what Rebase approximates, with 200 binary digits.
func exactRebase(u cluster.Usage, dt, halfLife time.Duration) float64 {
	if halfLife == 0 {
		return float64(u.Value) + float64(u.Rate)*dt.Seconds()
	}
	x := float64(dt) / float64(halfLife)
	return float64(u.Value)*math.Exp2(-x) - float64(u.Rate)*halfLife.Seconds()/math.Ln2*math.Expm1(-x*math.Ln2)
}

func TestRate(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		u := cluster.Usage{Value: r.Int64() >> r.IntN(63), Rate: r.Int64N(1<<40) >> r.IntN(40), At: cluster.Instant(r.Int64N(1 << 60))}
		u.Value >>= 2
		dt, half := time.Duration(r.Int64N(int64(100*week))>>r.IntN(50)), time.Duration(r.Int64N(int64(8*week))>>r.IntN(20))
		want := exactRebase(u, dt, half)
		if want > 1<<62 {
			continue
		}
		got := float64(UsageAt(u, u.At.Add(dt), half))
		if tolerance := 2 + want*1e-11 + float64(u.Rate)*2e-9; math.Abs(got-want) > tolerance {
			t.Fatalf("seed %d: %+v after %s with half-life %s: %.1f, want %.1f", seed, u, dt, half, got, want)
		}
	}
}

// TestOftenOrOnce checks that a value that is rebased at many instants equals one that is not.
func TestOftenOrOnce(t *testing.T) {
	u := cluster.Usage{Value: 1_000_000_000, Rate: 123_456}
	r := rand.New(rand.NewPCG(7, 7))
	often := u
	for range 1_000_000 {
		often = Rebase(often, often.At.Add(time.Duration(r.IntN(2_000_000))), week)
	}
	once, many := UsageAt(u, often.At, week), UsageAt(often, often.At, week)
	if d := once - many; d < -2 || d > 200 {
		t.Errorf("once %d, often %d", once, many)
	}
}

func TestSaturation(t *testing.T) {
	for _, u := range []cluster.Usage{{Value: math.MaxInt64, Rate: math.MaxInt64}, {Value: -5, Rate: -5}, {Part: math.MaxUint64, Value: math.MaxInt64}} {
		for _, dt := range []time.Duration{1, time.Second, math.MaxInt64} {
			for _, half := range []time.Duration{0, 1, week, math.MaxInt64} {
				if v := UsageAt(u, cluster.Instant(dt), half); v < 0 {
					t.Errorf("%+v after %s, half-life %s: %d", u, dt, half, v)
				}
			}
		}
	}
}

func TestNoTree(t *testing.T) {
	for _, nodes := range [][]Member{
		{{Parent: 0}}, {{Parent: -1, User: true}}, {{Parent: -1}, {Parent: 1}}, {{Parent: -1}, {Parent: -1}},
		{{Parent: -1}, {User: true}, {Parent: 1}}, {{Parent: -1}, {Shares: -1}}, {{Parent: -1}, {Usage: -1}}, {{Parent: -1, OfParent: true}},
	} {
		if _, err := NewTree(nodes); !errors.Is(err, ErrTree) {
			t.Errorf("%v: %v", nodes, err)
		}
	}
	if tree, err := NewTree(nil); err != nil || len(tree.FairTree(nil)) != 0 || len(tree.Classic(1, nil)) != 0 {
		t.Error("no nodes", err)
	}
}

// randomTree has few distinct shares and usages, so that some are equal.
func randomTree(seed uint64, n int) []Member {
	r := rand.New(rand.NewPCG(seed, 2))
	nodes := []Member{{Parent: -1}}
	for len(nodes) < n {
		p := int32(r.IntN(len(nodes)))
		if nodes[p].User {
			continue
		}
		nodes = append(nodes, Member{Parent: p, User: r.IntN(3) > 0, Shares: int64(r.IntN(4)), Usage: int64(r.IntN(4)) * 100, OfParent: r.IntN(8) == 0})
	}
	return nodes
}

// oracle ranks by comparing each pair of users level by level, on exact fractions: the path of a
// user is the LevelFS of each node on it.
func oracle(t *Tree) map[int32]float64 {
	path := func(user int32) []*big.Rat {
		var levels []*big.Rat
		for at := user; t.nodes[at].Parent >= 0; at = t.nodes[at].Parent {
			n, p := t.nodes[at], account(t.nodes, at)
			v := big.NewRat(-1, 1) // unused
			switch {
			case n.OfParent && !n.User:
				continue
			case n.OfParent:
			case n.Shares == 0:
				v.SetInt64(0)
			case n.Usage > 0:
				v = new(big.Rat).Mul(big.NewRat(n.Shares, shared(t.nodes, p)), big.NewRat(t.nodes[p].Usage, n.Usage))
			}
			levels = append(levels, v)
		}
		slices.Reverse(levels)
		return levels
	}
	users, paths := []int32{}, map[int32][]*big.Rat{}
	for i := range t.nodes {
		if t.nodes[i].User {
			users, paths[int32(i)] = append(users, int32(i)), path(int32(i))
		}
	}
	// better is negative when a comes before b, 0 when they are equal. Of two that are equal as far
	// as the shorter path goes, the shorter comes first.
	better := func(a, b int32) int {
		x, y := paths[a], paths[b]
		for i := range min(len(x), len(y)) {
			if c := x[i].Cmp(y[i]); c != 0 {
				switch {
				case x[i].Sign() < 0:
					return -1
				case y[i].Sign() < 0:
					return 1
				}
				return -c
			}
		}
		return cmp.Compare(len(x), len(y))
	}
	slices.SortStableFunc(users, better)
	out, rank := map[int32]float64{}, 0
	for i, u := range users {
		prefix := i > 0 && level0(paths[users[i-1]], paths[u])
		if i == 0 || !prefix {
			rank = len(users) - i
		}
		out[u] = float64(rank) / float64(len(users))
	}
	return out
}

// account returns the nearest node above another that has shares of its own.
func account(nodes []Member, at int32) int32 {
	at = nodes[at].Parent
	for nodes[at].OfParent {
		at = nodes[at].Parent
	}
	return at
}

// shared returns the shares of all that compete under an account.
func shared(nodes []Member, under int32) (sum int64) {
	for i, n := range nodes {
		if i > 0 && !n.OfParent && account(nodes, int32(i)) == under {
			sum += n.Shares
		}
	}
	return sum
}

// level0 reports whether b follows a though they are equal: the same path, or b's path begins with
// a's.
func level0(a, b []*big.Rat) bool {
	if len(a) > len(b) {
		return false
	}
	return slices.EqualFunc(a, b[:len(a)], func(x, y *big.Rat) bool { return x.Cmp(y) == 0 })
}

func checkTree(t *testing.T, nodes []Member) {
	tree, err := NewTree(nodes)
	if err != nil {
		return
	}
	tree.Sum()
	want := oracle(tree)
	for i, f := range tree.FairTree(nil) {
		if nodes[i].User && f.FairShare != want[int32(i)] {
			t.Fatalf("%v\nuser %d has %g, want %g", nodes, i, f.FairShare, want[int32(i)])
		}
	}
	for i, f := range tree.Classic(1, nil) {
		if math.IsNaN(f.FairShare) || f.FairShare < 0 || f.FairShare > 1 {
			t.Fatalf("%v\nnode %d has %g", nodes, i, f.FairShare)
		}
		if nodes[i].OfParent {
			if above := tree.Classic(1, nil)[account(nodes, int32(i))]; f.FairShare != above.FairShare || f.Effective != above.Effective {
				t.Fatalf("%v\nnode %d: %+v, of its parent %+v", nodes, i, f, above)
			}
		}
		if f.NormShares > 0 && math.Abs(f.FairShare-math.Exp2(-f.Effective/f.NormShares)) > 1e-12 {
			t.Fatalf("%v\nnode %d: %+v", nodes, i, f)
		}
	}
}

func TestRandomTrees(t *testing.T) {
	for seed := range uint64(3000) {
		checkTree(t, randomTree(seed, 2+int(seed%40)))
	}
}

// TestRepeatedFactors computes the factors of one tree repeatedly as usage changes, and compares them
// with those of a new tree.
func TestRepeatedFactors(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		nodes := randomTree(seed, 2+int(seed%40))
		tree, err := NewTree(nodes)
		if err != nil {
			continue
		}
		var tall, flat []Factor
		for range 20 {
			for i := range nodes {
				switch {
				case !nodes[i].User:
					nodes[i].Usage = 0
				case r.IntN(4) == 0:
					nodes[i].Usage = r.Int64N(1 << (1 + r.IntN(40)))
				}
			}
			first, err := NewTree(slices.Clone(nodes))
			if err != nil {
				t.Fatal(err)
			}
			tree.Sum()
			first.Sum()
			tall, flat = tree.FairTree(tall), tree.Classic(1, flat)
			if !slices.Equal(tall, first.FairTree(nil)) || !slices.Equal(flat, first.Classic(1, nil)) {
				t.Fatalf("seed %d: a tree asked again answers otherwise: %v", seed, nodes)
			}
		}
	}
}

func FuzzTree(f *testing.F) {
	f.Add(uint64(1), uint8(9))
	f.Fuzz(func(t *testing.T, seed uint64, size uint8) { checkTree(t, randomTree(seed, 2+int(size))) })
}

// BenchmarkFairTree has 10,000 accounts with 100,000 users.
func BenchmarkFairTree(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	nodes := []Member{{Parent: -1}}
	for i := range 10_000 {
		nodes = append(nodes, Member{Parent: int32(r.IntN(i/10 + 1)), Shares: int64(1 + r.IntN(100))})
	}
	for range 100_000 {
		nodes = append(nodes, Member{Parent: int32(1 + r.IntN(10_000)), User: true, Shares: 1, Usage: r.Int64N(1 << 40)})
	}
	b.Run("factors", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tree, err := NewTree(slices.Clone(nodes))
			if err != nil {
				b.Fatal(err)
			}
			tree.Sum()
			tree.FairTree(nil)
		}
	})
	b.Run("usage", func(b *testing.B) {
		u := cluster.Usage{Value: 1 << 40, Rate: 1000}
		for b.Loop() {
			u.Value ^= UsageAt(u, 123_456_789_012_345, week) & 1
		}
	})
}
