"""What a plan of Spark's is made of, told by the JVM in one call.

Lives here: the walk over a plan. Does not live here: what may be in one (`sqlguard`, `sqlclasses`).

Invariant: nothing is overlooked. The walk follows everything that a node was made of (lists, maps,
options, tuples, plans inside expressions), not only what Spark calls its children: a plan that was
merely parsed hides some in other fields (a WINDOW clause, VERSION AS OF, EXPLAIN, DESCRIBE QUERY).

It is written in Java and compiled when it is first used, by the compiler that Spark brings for its
generated code: 12 ms. From Python each step to a field would be a call to the JVM, and a query with
2,000 constants took 1.2 s so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ratchet.jobs.engine.javacode import compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = "org.apache.spark.sql."  # what the classes of its SQL begin with
_NAME: Final = "RatchetPlanWalk"
_JAVA: Final = r"""
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;

import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoDir;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.UserDefinedType;
import scala.Product;
import scala.collection.Iterator;

public final class RatchetPlanWalk implements java.util.function.BiFunction {
    private ArrayDeque waiting = new ArrayDeque();

    public synchronized Object apply(Object root, Object views) {
        HashSet ours = new HashSet(Arrays.asList(((String) views).split("\n")));
        IdentityHashMap seen = new IdentityHashMap();
        LinkedHashMap found = new LinkedHashMap();
        waiting.clear();
        waiting.add(root);
        while (!waiting.isEmpty()) {
            Object one = waiting.removeFirst();
            if (seen.put(one, one) != null) continue;
            if (one instanceof TreeNode) {
                TreeNode node = (TreeNode) one;
                if (node instanceof View && ours.contains(name((View) node))) continue;
                String names = names(node);
                String schema = schema(node);
                String key = node.getClass().getName() + names + schema;
                if (!found.containsKey(key)) found.put(key, told(node, names, schema));
                add(node.children());
                add(node.innerChildren());
                add(node.productIterator());
            } else if (one instanceof DataType) {
                String odd = odd((DataType) one);
                if (odd != null) found.put(odd, told(odd));
            } else if (one instanceof scala.Option) {
                add(((scala.Option) one).iterator());
            } else if (one instanceof scala.collection.IterableOnce) {
                add(((scala.collection.IterableOnce) one).iterator());
            } else if (one instanceof Product) {
                add(((Product) one).productIterator());
            } else if (one instanceof Object[]) {
                Object[] many = (Object[]) one;
                for (int n = 0; n < many.length; n++) put(many[n]);
            } else if (one instanceof java.lang.Iterable) {
                java.util.Iterator many = ((java.lang.Iterable) one).iterator();
                while (many.hasNext()) put(many.next());
            }
        }
        StringBuilder text = new StringBuilder("[");
        java.util.Iterator all = found.values().iterator();
        while (all.hasNext()) {
            if (text.length() > 1) text.append(',');
            text.append((String) all.next());
        }
        return text.append(']').toString();
    }

    private void add(scala.collection.Iterable many) {
        add(many.iterator());
    }

    private void add(Iterator many) {
        while (many.hasNext()) put(many.next());
    }

    private void put(Object one) {
        if (one != null) waiting.add(one);
    }

    // What makes Spark load a class by its name, or take a text for an expression; null: nothing.
    private static String odd(DataType type) {
        if (type instanceof UserDefinedType) return UserDefinedType.class.getName();
        if (type instanceof ArrayType) return odd(((ArrayType) type).elementType());
        if (type instanceof MapType) {
            String odd = odd(((MapType) type).keyType());
            return odd == null ? odd(((MapType) type).valueType()) : odd;
        }
        if (!(type instanceof StructType)) return null;
        StructField[] fields = ((StructType) type).fields();
        for (int n = 0; n < fields.length; n++) {
            boolean hasDefault = fields[n].metadata().json().contains("_DEFAULT");
            if (hasDefault) return StructField.class.getName();
            String odd = odd(fields[n].dataType());
            if (odd != null) return odd;
        }
        return null;
    }

    // The text that a function takes for a type; "?" if it is none that stands there; or nothing.
    private static String schema(TreeNode node) {
        if (!(node instanceof UnresolvedFunction)) return "";
        UnresolvedFunction function = (UnresolvedFunction) node;
        String name = last(function);
        int at = name.equals("from_json") || name.equals("from_csv") || name.equals("from_xml") ? 1
            : name.equals("variant_get") || name.equals("try_variant_get") ? 2 : -1;
        scala.collection.Seq arguments = function.arguments();
        Iterator all = arguments.iterator();
        while (at >= 0 && all.hasNext()) {
            if (all.next() instanceof NamedArgumentExpression) return "?";
        }
        if (at < 0 || arguments.size() <= at) return "";
        Object one = arguments.apply(at);
        if (one instanceof Literal) return String.valueOf(((Literal) one).value());
        // These two give a type in SQL's words.
        boolean told = one instanceof UnresolvedFunction
            && ((UnresolvedFunction) one).nameParts().size() == 1
            && (last((UnresolvedFunction) one).equals("schema_of_json")
                || last((UnresolvedFunction) one).equals("schema_of_csv"));
        return told ? "" : "?";
    }

    private static String last(UnresolvedFunction function) {
        return String.valueOf(function.nameParts().last()).toLowerCase(java.util.Locale.ROOT);
    }

    private static String name(View view) {
        TableIdentifier id = view.desc().identifier();
        return (id.database().isEmpty() ? "" : (String) id.database().get()) + "." + id.table();
    }

    // The first list of texts that a node was made of: the parts of a name.
    private static String names(TreeNode node) {
        Iterator parts = node.productIterator();
        while (parts.hasNext()) {
            Object part = parts.next();
            if (part instanceof FunctionIdentifier) {
                FunctionIdentifier id = (FunctionIdentifier) part;
                scala.Option where = id.database();
                String head = where.isEmpty() ? "" : quoted((String) where.get()) + ",";
                return "[" + head + quoted(id.funcName()) + "]";
            }
            if (!(part instanceof scala.collection.Seq)) continue;
            scala.collection.Seq many = (scala.collection.Seq) part;
            if (many.isEmpty() || !(many.apply(0) instanceof String)) continue;
            StringBuilder text = new StringBuilder();
            Iterator words = many.iterator();
            while (words.hasNext()) {
                if (text.length() > 0) text.append(',');
                text.append(quoted(String.valueOf(words.next())));
            }
            return "[" + text + "]";
        }
        return "[]";
    }

    private static String told(String kind) {
        return "{\"kind\":" + quoted(kind)
            + ",\"names\":[],\"acts\":false,\"line\":0,\"text\":\"\",\"schema\":\"\"}";
    }

    private static String told(TreeNode node, String names, String schema) {
        Origin at = node.origin();
        String text = "";
        if (at.sqlText().isDefined() && at.startIndex().isDefined() && at.stopIndex().isDefined()) {
            String whole = (String) at.sqlText().get();
            int start = ((Integer) at.startIndex().get()).intValue();
            int stop = ((Integer) at.stopIndex().get()).intValue() + 1;
            if (0 <= start && start < stop && stop <= whole.length()) {
                text = whole.substring(start, Math.min(stop, start + 200));
            }
        }
        boolean acts = node instanceof Command || node instanceof ParsedStatement
            || node instanceof InsertIntoDir;
        int line = at.line().isDefined() ? ((Integer) at.line().get()).intValue() : 0;
        return "{\"kind\":" + quoted(node.getClass().getName()) + ",\"names\":" + names
            + ",\"acts\":" + acts + ",\"line\":" + line + ",\"text\":" + quoted(text)
            + ",\"schema\":" + quoted(schema) + "}";
    }

    private static String quoted(String text) {
        StringBuilder made = new StringBuilder("\"");
        for (int n = 0; n < text.length(); n++) {
            char c = text.charAt(n);
            if (c == '"' || c == '\\' || c < 32 || c > 126) {
                made.append("\\u").append(Integer.toHexString(65536 + c).substring(1));
            } else {
                made.append(c);
            }
        }
        return made.append('"').toString();
    }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One kind of plan or expression that is in a plan, where it was first met.

    Attributes:
        kind: its class.
        names: the parts of the name that it asks for, if it is one that asks.
        acts: whether it is one of Spark's commands: those that only tell something among them.
        line: of the query; 0 if it is not known.
        text: what stands there, cut to 200 characters.
        schema: of a function that takes a text for a type, in a plan that was merely parsed: that
            text, "?" if it is not known by then. Else empty.
    """

    kind: str
    names: tuple[str, ...]
    acts: bool
    line: int
    text: str
    schema: str = ""

    @property
    def short(self) -> str:
        """The class without what Spark's own have in front; empty if it is none of Spark's."""
        return self.kind.removeprefix(SPARK) if self.kind.startswith(SPARK) else ""

    @property
    def last(self) -> str:
        """The class without its package."""
        return self.kind.rsplit(".", 1)[-1].rstrip("$")


@lru_cache(maxsize=1)
def _walker(jvm: Any, gateway: Any) -> Any:
    """Once for a JVM: two classes of one name are more than py4j can tell apart."""
    made = compiled(jvm, _NAME, _JAVA).getDeclaredConstructors()[0]
    return made.newInstance(gateway.new_array(jvm.java.lang.Object, 0))


def walk(spark: SparkSession, plan: Any, views: Iterable[tuple[str, str]] = ()) -> list[Node]:
    """What a plan is made of, each kind and name once, from its root on.

    Args:
        spark: the session.
        plan: Spark's own object.
        views: database and name of those below which nothing is looked at.
    """
    context: Any = spark.sparkContext
    walker = _walker(context._jvm, context._gateway)  # noqa: SLF001 - no public door in PySpark
    told = str(walker.apply(plan, "\n".join(".".join(view) for view in views)))
    return [
        Node(
            kind=one["kind"],
            names=tuple(one["names"]),
            acts=one["acts"],
            line=one["line"],
            text=one["text"],
            schema=one["schema"],
        )
        for one in json.loads(told)
    ]
