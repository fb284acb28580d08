package curve

import (
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Picture shows the figures of one curve in panels side by side.
type Picture struct {
	Title string
	// X names the axis of what grows, which is logarithmic with LogX.
	X      string
	LogX   bool
	Panels []Panel
	Rows   []Row
}

// Panel is one diagram.
type Panel struct {
	// Y names the axis with its unit.
	Y     string
	Lines []Line
}

// Line is a metric of each series.
type Line struct{ Metric, Name string }

// The panels of the curves.
var (
	Throughput = []Panel{{"records per second", []Line{{RecordsPerCPUSecond, "of CPU time"}, {RecordsPerSecond, "on the clock"}}}}
	Bytes      = Panel{"bytes per second", []Line{{BytesPerCPUSecond, "of CPU time"}, {BytesPerSecond, "on the clock"}}}
	Cost       = Panel{"nanoseconds of CPU time per record", []Line{{NanosecondsPerRecord, "cost"}}}
	Memory     = Panel{"MB resident at most, all processes", []Line{{PeakMB, "memory"}}}
)

// The size of a panel.
const (
	width  = 5 * vg.Inch
	height = 3.6 * vg.Inch
)

// logarithmic is the ratio of the largest to the smallest value from which an axis of values is logarithmic.
const logarithmic = 20

// colors tell series apart, also for people who see few colours.
var colors = []color.Color{color.RGBA{0, 90, 160, 255}, color.RGBA{205, 90, 20, 255}, color.RGBA{60, 140, 60, 255}}

// Save draws the picture as an SVG file.
func (p Picture) Save(path string) error {
	canvas := vgsvg.New(width*vg.Length(len(p.Panels)), height)
	dc := draw.New(canvas)
	dc.SetColor(color.White)
	dc.Fill(dc.Path())
	plots := make([]*plot.Plot, len(p.Panels))
	for i, panel := range p.Panels {
		var err error
		if plots[i], err = p.panel(panel); err != nil {
			return err
		}
	}
	plots[0].Title.Text = p.Title
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Points(14), PadTop: vg.Points(4), PadBottom: vg.Points(4), PadLeft: vg.Points(4), PadRight: vg.Points(16)}
	for i, c := range plot.Align([][]*plot.Plot{plots}, tiles, dc)[0] {
		plots[i].Draw(c)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

func (p Picture) panel(panel Panel) (*plot.Plot, error) {
	out := plot.New()
	out.X.Label.Text, out.Y.Label.Text = p.X, panel.Y
	for _, style := range []*font.Font{
		&out.Title.TextStyle.Font, &out.X.Label.TextStyle.Font, &out.Y.Label.TextStyle.Font, &out.X.Tick.Label.Font, &out.Y.Tick.Label.Font,
		&out.Legend.TextStyle.Font,
	} {
		style.Variant = "Sans"
	}
	out.Title.Padding = vg.Points(6)
	out.Add(plotter.NewGrid())
	least, most, xs := p.extent(panel)
	// Logarithms are drawn in place of values: gonum's own scale leaves a margin above that depends on them.
	place := func(v float64) float64 { return v }
	out.Y.Tick.Marker = plot.TickerFunc(valueTicks)
	out.Y.Min, out.Y.Max = 0, most*1.4
	if most > least*logarithmic {
		place = math.Log10
		out.Y.Tick.Marker = plot.TickerFunc(logTicks)
		out.Y.Min, out.Y.Max = place(least/2), place(most*2)+(place(most)-place(least))/4
	}
	for i, series := range p.series() {
		for j, line := range panel.Lines {
			var points plotter.XYs
			for _, r := range p.Rows {
				if r.Series == series && r.Metric == line.Metric {
					points = append(points, plotter.XY{X: r.X, Y: place(r.Value)})
				}
			}
			if len(points) == 0 {
				continue
			}
			l, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return nil, err
			}
			l.Color, dots.Color = colors[i%len(colors)], colors[i%len(colors)]
			l.Width = vg.Points(1.5)
			dots.Shape, dots.Radius = draw.CircleGlyph{}, vg.Points(2.5)
			if j > 0 {
				l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
				dots.Shape = draw.RingGlyph{}
			}
			low, high := out.Y.Min, out.Y.Max
			out.Add(l, dots)
			out.Y.Min, out.Y.Max = low, high
			name := line.Name
			if len(panel.Lines) == 1 {
				name = ""
			}
			out.Legend.Add(label(series, name), l, dots)
		}
	}
	out.X.Tick.Marker = ticks(xs)
	if p.LogX {
		out.X.Scale = plot.LogScale{}
	}
	out.Legend.Top = true
	out.Legend.Padding = vg.Points(3)
	out.Legend.YOffs = vg.Points(-2)
	return out, nil
}

// extent returns the least and the largest value of a panel, and where values are.
func (p Picture) extent(panel Panel) (least, most float64, xs []float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for _, r := range p.Rows {
		if slices.ContainsFunc(panel.Lines, func(l Line) bool { return l.Metric == r.Metric }) {
			least, most, xs = min(least, r.Value), max(most, r.Value), append(xs, r.X)
		}
	}
	slices.Sort(xs)
	return least, most, slices.Compact(xs)
}

func label(series, line string) string {
	if line == "" {
		return series
	}
	return series + ", " + line
}

// series lists the series in the order of their first figures.
func (p Picture) series() []string {
	var out []string
	for _, r := range p.Rows {
		if !slices.Contains(out, r.Series) {
			out = append(out, r.Series)
		}
	}
	return out
}

// ticks marks the values that were measured.
func ticks(at []float64) plot.ConstantTicks {
	var out plot.ConstantTicks
	for _, v := range at {
		out = append(out, plot.Tick{Value: v, Label: short(v)})
	}
	return out
}

// valueTicks marks four to eight round values from 0 on.
func valueTicks(_, most float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for most/step < 4 {
		step /= 2
	}
	var out []plot.Tick
	for n := 0.0; n*step <= most; n++ {
		out = append(out, plot.Tick{Value: n * step, Label: short(n * step)})
	}
	return out
}

// logTicks marks 1, 2 and 5 of each power of ten between two logarithms.
func logTicks(least, most float64) []plot.Tick {
	var out []plot.Tick
	for power := math.Floor(least); power <= most; power++ {
		for _, digit := range []float64{1, 2, 5} {
			if at := power + math.Log10(digit); at >= least && at <= most {
				out = append(out, plot.Tick{Value: at, Label: short(digit * math.Pow(10, power))})
			}
		}
	}
	return out
}

// short writes a number with k, M or G.
func short(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if v >= u.size {
			return strconv.FormatFloat(v/u.size, 'g', 3, 64) + u.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
