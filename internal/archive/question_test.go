package archive

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/pkg/cluster"
)

// history returns n records of few users and accounts; most jobs last minutes, some days, and their
// ends are slightly out of order.
func history(r *rand.Rand, n int) []Record {
	var list []Record
	now := cluster.Instant(1000 * time.Hour)
	for i := range n {
		now += cluster.Instant(r.Int64N(int64(20 * time.Minute)))
		length := time.Duration(r.Int64N(int64(time.Hour)))
		if r.IntN(10) == 0 {
			length *= 100
		}
		ended := now - cluster.Instant(r.Int64N(int64(time.Minute)))
		list = append(list, Record{
			Seq: uint64(i + 1), ID: cluster.JobID(500 + i), User: fmt.Sprintf("u%d", r.IntN(5)), Account: fmt.Sprintf("a%d", r.IntN(3)),
			State: cluster.Completed + cluster.JobState(r.IntN(3)), Submitted: ended - cluster.Instant(length), Ended: ended,
			Data: fmt.Appendf(nil, "data %d", i),
		})
	}
	return list
}

// scan answers a question by reading everything.
func (q Question) scan(all []Record) []Record {
	var list []Record
	in := func(names []string, name string) bool { return names == nil || slices.Contains(names, name) }
	for _, r := range all {
		if in(q.Users, r.User) && in(q.Accounts, r.Account) && (q.States == nil || slices.Contains(q.States, r.State)) &&
			r.Ended >= q.Since && (q.Until == 0 || r.Submitted < q.Until) && (q.EndedBy == 0 || r.Ended < q.EndedBy) &&
			(q.Through == 0 || r.Seq <= q.Through) {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b Record) int {
		return bytes.Compare(stamp(nil, a.Ended, a.Seq), stamp(nil, b.Ended, b.Seq))
	})
	return list
}

// someQuestion returns a random question about history.
func someQuestion(r *rand.Rand, n int) Question {
	q := Question{Limit: 1 + r.IntN(50)}
	at := func() cluster.Instant {
		return cluster.Instant(1000*time.Hour) + cluster.Instant(r.Int64N(int64(n)*int64(12*time.Minute)))
	}
	pick := func(letter string, among int) (names []string) {
		for range r.IntN(3) {
			names = append(names, fmt.Sprint(letter, r.IntN(among)))
		}
		return names
	}
	q.Users, q.Accounts = pick("u", 6), pick("a", 4)
	if r.IntN(2) == 0 {
		q.Since = at()
	}
	if r.IntN(2) == 0 {
		q.Until = at()
	}
	if r.IntN(4) == 0 {
		q.EndedBy = at()
	}
	if r.IntN(3) == 0 {
		q.States = []cluster.JobState{cluster.Failed}
	}
	if r.IntN(4) == 0 {
		q.Through = uint64(r.IntN(n) + 1)
	}
	if r.IntN(10) == 0 { // more names than are searched side by side
		for i := range maxLanes + 1 {
			q.Users = append(q.Users, fmt.Sprint("u", i))
		}
	}
	return q
}

// ask returns all pages of an answer.
func ask(t testing.TB, a *Archive, q Question) []Record {
	t.Helper()
	var all []Record
	for {
		list, next, more, err := a.Answer(q)
		must(t, err)
		if len(list) > q.Limit {
			t.Fatalf("%d records on a page of %d", len(list), q.Limit)
		}
		all = append(all, list...)
		if !more {
			return all
		}
		if next == q.After {
			t.Fatalf("the page after %+v comes to the same place", q.After)
		}
		q.After = next
	}
}

func TestAnswersAreThoseOfLookingAtEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := history(r, 1500)
	a := open(t, t.TempDir())
	must(t, a.Append(1, all, nil))
	for range 500 {
		q := someQuestion(r, len(all))
		if got, want := ask(t, a, q), q.scan(all); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v:\ngot  %d records %+v\nwant %d records %+v", q, len(got), got, len(want), want)
		}
	}
}

// agree fails the test unless the indexes hold exactly what follows from the records.
func agree(t testing.TB, a *Archive) {
	t.Helper()
	must(t, a.Sync())
	must(t, a.db.View(func(tx *bolt.Tx) error {
		want := map[string]string{}
		hours := map[uint64]uint64{}
		c := tx.Bucket(bucketJobs).Cursor()
		n := 0
		for k, v := c.First(); k != nil; k, v = c.Next() {
			r, err := decode(parseNumber(k), v)
			if err != nil {
				return err
			}
			n++
			want["ids"+string(number(uint64(r.ID)))] = string(number(r.Seq))
			want["ended"+string(stamp(nil, r.Ended, r.Seq))] = string(r.entry())
			want["users"+string(stamp(lane(r.User), r.Ended, r.Seq))] = string(r.entry())
			want["accounts"+string(stamp(lane(r.Account), r.Ended, r.Seq))] = string(r.entry())
			hour := hourOf(r.Ended)
			if old, ok := hours[hour]; !ok || uint64(r.Submitted) < old {
				hours[hour] = uint64(r.Submitted)
			}
		}
		got := map[string]string{}
		for _, name := range indexes() {
			if bytes.Equal(name, bucketHours) {
				continue
			}
			must(t, tx.Bucket(name).ForEach(func(k, v []byte) error { got[string(name)+string(k)] = string(v); return nil }))
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%d records: the indexes have %d entries, %d follow from them", n, len(got), len(want))
		}
		for hour, least := range hours { // it may be earlier, after records were removed
			if v := tx.Bucket(bucketHours).Get(number(hour)); v == nil || parseNumber(v) > least {
				t.Fatalf("hour %d: %x, want at most %d", hour, v, least)
			}
		}
		return nil
	}))
}

func TestIndexesFollowRecordsThatAreTakenBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	a := open(t, t.TempDir())
	must(t, a.Append(1, history(r, 300), nil))
	agree(t, a)
	other := history(r, 200)[100:] // another history from number 101 on
	must(t, a.Append(2, other, nil))
	agree(t, a)
	must(t, a.Expect(230))
	must(t, a.Fill(history(r, 230)[210:220], nil))
	agree(t, a)
}

func TestMissingIndexesAreRebuilt(t *testing.T) {
	if testing.Short() {
		t.Skip("sequential, and too long for -short")
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(5, 6))
	all := history(r, indexBatch+300)
	a := open(t, dir)
	must(t, a.Append(1, all, nil))
	must(t, a.Close())
	for what, harm := range map[string]func(tx *bolt.Tx) error{
		"one is missing": func(tx *bolt.Tx) error { return tx.DeleteBucket(bucketAccounts) },
		"another form":   func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyIndexed, make([]byte, 16)) },
		"none is there":  func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Delete(keyIndexed) },
		"stopped half-way": func(tx *bolt.Tx) error {
			for _, r := range all[100:] {
				if err := takeFromIndexes(tx, &r); err != nil {
					return err
				}
			}
			return setIndexed(tx.Bucket(bucketMeta), 100)
		},
	} {
		db, err := bolt.Open(dir+"/"+fileName, 0o600, nil)
		must(t, err)
		must(t, db.Update(harm))
		must(t, db.Close())
		a, err := Open(dir, Options{})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		agree(t, a)
		q := Question{Accounts: []string{"a1"}, Limit: 1000}
		if got, want := ask(t, a, q), q.scan(all); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %d records, want %d", what, len(got), len(want))
		}
		must(t, a.Close())
	}
}
