"""The closed list of functions: what reads a file, dials out, waits, or tells of the server is not on it.

Left out with intent: conversions to and from other tables (`dictGet`, `joinGet`), `in` written as a function (its
right side may be a table), everything about the server (`hostName`, `version`, `getSetting`, `currentUser`), `sleep`,
`throwIf`, states of aggregates, what calls a function by a name in a text (`arrayReduce`), and what makes long texts
of a number (`repeat`, `space`).
"""

_PLAIN = """
abs accurateCastOrNull acos array arrayAll arrayAvg arrayConcat arrayCount arrayCumSum arrayDifference arrayDistinct
arrayElement arrayEnumerate arrayExists arrayFilter arrayFirst arrayFirstIndex arrayIntersect arrayJoin arrayLast
arrayLastIndex arrayMap arrayMax arrayMin arrayPopBack arrayPopFront arrayPushBack arrayPushFront arrayReverse
arrayReverseSort arraySlice arraySort arrayStringConcat arraySum arrayUniq arrayZip ascii asin assumeNotNull atan
atan2 bitAnd bitCount bitNot bitOr bitShiftLeft bitShiftRight bitTest bitXor cbrt ceil ceiling char cityHash64
coalesce concat concatWithSeparator cos cosh countSubstrings dateDiff degrees divide e empty endsWith equals exp exp10
exp2 extract extractAll factorial floor formatDateTime formatReadableQuantity formatReadableSize
formatReadableTimeDelta fromUnixTimestamp64Micro fromUnixTimestamp64Milli fromUnixTimestamp64Nano gcd greater
greaterOrEquals greatest has hasAll hasAny hasSubstr hasToken hasTokenCaseInsensitive hex if ifNotFinite ifNull
indexOf intDiv intDivOrZero isFinite isInfinite isNaN isNotNull isNull isValidJSON JSONExtractArrayRaw JSONExtractBool
JSONExtractFloat JSONExtractInt JSONExtractKeys JSONExtractRaw JSONExtractString JSONExtractUInt JSONHas JSONLength
JSONType lcm least left leftPad length lengthUTF8 less lessOrEquals like ilike ln log log10 log1p log2 lower lowerUTF8
map mapAdd mapApply mapConcat mapContains mapContainsKey mapFilter mapFromArrays mapKeys mapSubtract mapUpdate
mapValues match minus modulo moduloOrZero multiply negate not notEmpty notEquals notLike now now64 nullIf pi plus
position positionCaseInsensitive positiveModulo pow power radians range regexpExtract replace replaceAll replaceOne
replaceRegexpAll replaceRegexpOne reverse right rightPad round roundBankers roundDown sigmoid sign sin sinh sipHash64
splitByChar splitByRegexp splitByString splitByWhitespace sqrt startsWith substring substringUTF8 subtractDays
subtractHours subtractMinutes subtractSeconds addDays addHours addMinutes addSeconds tan tanh toBool toDate toDateTime
toDateTime64 toDayOfMonth toDayOfWeek toDayOfYear toFloat32 toFloat32OrNull toFloat32OrZero toFloat64 toFloat64OrNull
toFloat64OrZero toHour toInt16 toInt16OrNull toInt32 toInt32OrNull toInt32OrZero toInt64 toInt64OrNull toInt64OrZero
toInt8 toInt8OrNull toISOWeek toLastDayOfMonth toMinute toMonday toMonth toNullable toQuarter toSecond toStartOfDay
toStartOfFifteenMinutes toStartOfFiveMinutes toStartOfHour toStartOfInterval toStartOfMinute toStartOfMonth
toStartOfQuarter toStartOfSecond toStartOfTenMinutes toStartOfWeek toStartOfYear toString toTypeName toUInt16
toUInt16OrNull toUInt32 toUInt32OrNull toUInt32OrZero toUInt64 toUInt64OrNull toUInt64OrZero toUInt8 toUInt8OrNull
toUnixTimestamp toUnixTimestamp64Micro toUnixTimestamp64Milli toUnixTimestamp64Nano toYear toYYYYMM toYYYYMMDD today
transform trim trimBoth trimLeft trimRight trunc tryBase64Decode base64Encode tuple tupleElement unhex upper upperUTF8
widthBucket xor yesterday
"""

_AGGREGATES = """
any anyHeavy anyLast argMax argMin avg avgWeighted boundingRatio corr count covarPop covarSamp deltaSum
deltaSumTimestamp entropy first_value groupArray groupArrayLast groupArrayMovingAvg groupArrayMovingSum groupArraySample
groupArraySorted groupBitAnd groupBitOr groupBitXor groupUniqArray histogram intervalLengthSum kurtPop kurtSamp
last_value max maxMap median medianExact min minMap quantile quantileDD quantileExact quantileExactHigh quantileExactLow
quantileExactWeighted quantileInterpolatedWeighted quantileTDigest quantileTiming quantiles quantilesDD quantilesExact
quantilesTDigest rankCorr simpleLinearRegression singleValueOrNull skewPop skewSamp stddevPop stddevPopStable
stddevSamp stddevSampStable sum sumCount sumKahan sumMap sumWithOverflow topK topKWeighted uniq uniqCombined
uniqCombined64 uniqExact uniqHLL12 uniqUpTo varPop varSamp
"""

_OVER_WINDOWS = "row_number rank dense_rank percent_rank cume_dist ntile lag lead lagInFrame leadInFrame nth_value"

_COMBINATORS = ("", "If", "OrNull", "OrNullIf", "OrDefault", "Distinct", "DistinctIf", "Array", "ArrayIf", "ForEach")

FUNCTIONS: frozenset[str] = frozenset(
    {
        *_PLAIN.split(),
        *_OVER_WINDOWS.split(),
        *(f"{name}{combinator}" for name in _AGGREGATES.split() for combinator in _COMBINATORS),
    }
)
"""Names of the functions that a statement may call, as ClickHouse spells them."""

BY_LOWER_CASE: dict[str, str] = {name.lower(): name for name in sorted(FUNCTIONS)}
"""ClickHouse's spelling by the name in small letters: `countif` is meant as `countIf`."""


def plain_functions() -> tuple[str, ...]:
    """For the reference: the functions of one row, in order."""
    return tuple(sorted({*_PLAIN.split(), *_OVER_WINDOWS.split()}, key=str.lower))


def aggregates() -> tuple[str, ...]:
    """For the reference: the aggregates without combinators, in order."""
    return tuple(sorted(_AGGREGATES.split(), key=str.lower))


def combinators() -> tuple[str, ...]:
    """For the reference: what may stand behind an aggregate's name."""
    return tuple(name for name in _COMBINATORS if name)
